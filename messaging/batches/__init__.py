"""Batches: thousands of messages from one number, sent at its pace."""
