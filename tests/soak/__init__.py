"""Soak test: events and messages through every fault of the fault table in random order, reconciled at both ends."""
