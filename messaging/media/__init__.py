"""Media files: streamed to and from the upstream. The service stores no file."""
