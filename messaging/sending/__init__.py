"""Sending one message: the flow, its runtimes, its journal and the event that it writes."""
