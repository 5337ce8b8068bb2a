"""Notifications of Meta: their events, the account of each change, and splitting by tenant. Pure functions."""
