"""Destinations of events other than HTTPS: queues, topics, exchanges and object stores. Each kind is a module."""
