"""Signals of tenants that go upward (docs/architecture.md)."""

from django.dispatch import Signal

sandbox_wanted = Signal()
"""Sent with `tenant_id` inside a transaction after which somebody can use the tenant's sandbox.

It confirms a sign-up, makes a tenant that is a sandbox, or makes a test key.
"""

tenant_closing = Signal()
"""Sent by `phone_numbers.leaving.close` once a tenant can act no more, with `tenant_id` and `delete_data`.

A receiver ends what its app holds of the tenant and returns how much of what, {what: count}, for the receipt. It is
safe to repeat, and runs in no transaction.
"""
