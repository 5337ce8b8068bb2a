"""Incoming notifications of the upstream: validated, routed to their tenants, published as events."""
