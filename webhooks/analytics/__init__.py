"""Hourly analytics of messages and deliveries."""
