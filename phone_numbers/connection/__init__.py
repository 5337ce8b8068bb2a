"""The connection of a number: its state, the reason, the billed intervals and the events about it."""
