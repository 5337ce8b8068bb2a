"""Webhooks: endpoints, the event log, deliveries, the event stream, hourly analytics."""
