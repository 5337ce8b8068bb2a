"""Sync of accounts and numbers with the upstream, by schedule and by its events."""
