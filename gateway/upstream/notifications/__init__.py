"""Notifications of Meta: signature, routing by account, and the events of each. Pure functions."""
