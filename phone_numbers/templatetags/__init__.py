"""Template filters of phone numbers."""
