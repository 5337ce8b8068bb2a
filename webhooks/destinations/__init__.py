"""Destinations of events other than HTTPS: queues, topics, exchanges and object stores. One module each, one
interface.
"""
