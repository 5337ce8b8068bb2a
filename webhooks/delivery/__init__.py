"""Delivery of events to endpoints: the dispatcher claims due deliveries, sends them signed and records outcomes."""
