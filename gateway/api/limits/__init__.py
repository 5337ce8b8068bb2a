"""Limits of one call: size of its body, calls at once, calls a minute."""
