"""Notifications of the upstream: signature, routing by account, and the events that each makes. Pure."""
