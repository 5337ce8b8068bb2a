"""Credentials: API keys, console sessions, passwords, and the key cache."""
