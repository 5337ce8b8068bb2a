"""Plumbing of the HTTP API: callers, limits, errors, lists, JSON, the OpenAPI document, health."""
