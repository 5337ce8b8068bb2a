"""Media: files are streamed to and from the upstream; the service stores none."""
