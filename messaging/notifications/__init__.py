"""Incoming notifications of the upstream: verified, routed to their tenants, published as events."""
