"""The sandbox of a tenant: a business account at the simulator, created and used through the API."""
