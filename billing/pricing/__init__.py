"""Prices, taxes and months. Pure functions: no database, no clock."""
