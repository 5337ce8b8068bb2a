"""Conversations of a number with its customers, read from the message log and the stored bodies of events."""
