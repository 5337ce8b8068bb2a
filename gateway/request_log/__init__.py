"""The request log: one row for each call of the API, kept for days, that its own caller may read."""
