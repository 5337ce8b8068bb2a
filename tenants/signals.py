"""Signals of tenants that go upward (docs/architecture.md)."""

from django.dispatch import Signal

address_confirmed = Signal()
"""Sent inside the transaction that confirms a sign-up and makes its tenant, with `tenant_id`."""

tenant_closing = Signal()
"""Sent by `phone_numbers.leaving.close` once a tenant can act no more, with `tenant_id` and `delete_data`.

A receiver ends what its app holds of the tenant and returns how much of what, {what: count}, for the receipt. It is
safe to repeat, and runs in no transaction.
"""
