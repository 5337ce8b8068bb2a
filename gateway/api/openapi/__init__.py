"""The OpenAPI document: the parts that the views do not declare."""
