"""Encryption of stored secrets, and the change of its keys."""
