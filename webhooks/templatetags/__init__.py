"""Template filters of the webhook pages."""
