"""Tenants: businesses and platform apps, their members and credentials, sign-up, approval and the audit log."""
