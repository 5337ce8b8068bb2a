"""Notification router: Meta's single callback address in front of several cells (`docs/capacity.md`)."""
