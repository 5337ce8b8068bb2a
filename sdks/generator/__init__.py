"""Generator of the typed parts of the SDKs: read docs/openapi.json, write types and one method per operation."""
