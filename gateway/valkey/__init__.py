"""Valkey: its address, the connection, the cache and the token bucket kept in it."""
