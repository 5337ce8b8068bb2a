"""Signals of tenants that go upward (docs/architecture.md)."""

from django.dispatch import Signal

address_confirmed = Signal()
"""Sent inside the transaction that confirms a sign-up and makes its tenant, with `tenant_id`."""
