"""Sending of one message: the flow, its journal, the event that it writes, and read receipts."""
