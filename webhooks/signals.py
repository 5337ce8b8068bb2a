"""The one signal that goes upward: a tenant's endpoints changed (docs/architecture.md)."""

from django.dispatch import Signal

endpoints_changed = Signal()
"""Sent inside the transaction of the change, with `tenant_id` and `environment`."""
