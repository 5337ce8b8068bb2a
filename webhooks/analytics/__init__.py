"""Hourly figures of messages and deliveries."""
