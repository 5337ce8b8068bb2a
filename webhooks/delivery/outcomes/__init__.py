"""Outcomes: what an attempt changes in its delivery and in its endpoint, and the statements that write it."""
