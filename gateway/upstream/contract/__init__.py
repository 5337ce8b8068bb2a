"""Schemas of bodies that are the upstream's own, for the OpenAPI document."""
