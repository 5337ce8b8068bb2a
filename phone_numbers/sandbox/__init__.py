"""The sandbox of a tenant: a business account at the simulator, made and used through the API."""
