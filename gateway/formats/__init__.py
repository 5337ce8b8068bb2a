"""Formats of dates and times. Django finds them by the name of the language."""
