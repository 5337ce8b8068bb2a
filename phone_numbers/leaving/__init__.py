"""Leaving: a number or an account is released, a tenant is closed."""
