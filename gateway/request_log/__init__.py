"""The request log: one row for each API call. A row is stored for days, and its caller may read it."""
