"""Incoming notifications of the upstream: checked, routed to their tenants, published as events."""
