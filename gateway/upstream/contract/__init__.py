"""Schemas of Meta's own bodies, for the OpenAPI document."""
