"""Caps: how many deliveries of each endpoint and tenant a dispatcher takes and has in flight, and their memory."""
