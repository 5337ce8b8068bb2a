"""Template filters of billing."""
