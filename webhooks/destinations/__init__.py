"""Destinations for events that are not HTTPS endpoints: queues, topics, exchanges, object stores. Each kind is a module."""
