"""Tenants: businesses and platforms, their people and credentials, sign-up, approval, audit."""
