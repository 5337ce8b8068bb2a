"""Credentials: API keys, console sessions, passwords, and the cache that finds their owner."""
