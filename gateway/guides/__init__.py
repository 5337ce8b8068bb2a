"""The served documentation at `/docs/`: the guides of `docs/` and the API reference, built by MkDocs."""
