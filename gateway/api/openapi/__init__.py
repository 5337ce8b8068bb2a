"""The OpenAPI document: what the views alone do not contain."""
