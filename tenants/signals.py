"""Signals that tenants send to higher apps (docs/architecture.md)."""

from django.dispatch import Signal

sandbox_wanted = Signal()
"""Sent with `tenant_id`, inside a transaction. After the commit, the tenant can use the sandbox.

Sent when a sign-up is confirmed, and when a sandbox tenant or a test key is created.
"""

application_corrected = Signal()
"""Sent with `tenant_id`, inside the transaction in which a tenant corrects its application. A receiver
deletes what it copied from the former application.
"""

tenant_closing = Signal()
"""Sent by `phone_numbers.leaving.close` when a tenant has lost its access, with `tenant_id` and `delete_data`.

A receiver ends or deletes the tenant's data in its app, and returns {kind: count} for the receipt. It runs outside a
transaction and must be safe to repeat.
"""
