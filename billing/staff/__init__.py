"""Billing's part of the staff pages: dashboard cards and the search."""
