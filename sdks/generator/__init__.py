"""Generator of the typed parts of the SDKs: reads docs/openapi.json, writes types and one method per operation."""
