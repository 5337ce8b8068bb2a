"""Batches: thousands of messages, sent from one number at its pace. Also single scheduled messages."""
