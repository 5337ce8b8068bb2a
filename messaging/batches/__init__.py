"""Batches: thousands of messages of one number, sent at its pace."""
