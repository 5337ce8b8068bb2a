"""Message templates: written at the upstream, mirrored here."""
