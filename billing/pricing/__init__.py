"""Prices, taxes and months. Pure: no database, no clock."""
