"""Notification router: the upstream's one callback address in front of several cells (`docs/capacity.md`)."""
