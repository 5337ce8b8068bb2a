"""Template filters and tags of billing."""
