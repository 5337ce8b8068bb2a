"""The tenants that are served: active ones, and those that wait for approval in their test world alone.

The condition is written in SQL, because the engines that deliver and send ask it for many rows in one statement.
"""

SERVED = "(t.status = 'active' OR t.status = 'pending_approval' AND {row}.environment = 'test')"
"""`t` is the tenant, `{row}` the endpoint or batch that belongs to one of its environments."""
