"""The request log: one row for each API call, stored for days, which its own caller may read."""
