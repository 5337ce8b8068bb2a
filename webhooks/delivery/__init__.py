"""Delivery of events to endpoints: the dispatcher claims what is due, sends it signed, and records the outcomes."""
