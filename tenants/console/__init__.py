"""The console: its frame, and the pages of keys, team, settings and the request log."""
