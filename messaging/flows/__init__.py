"""Data requests of WhatsApp Flows: the endpoint of each number, and the exchange with the tenant's server."""
