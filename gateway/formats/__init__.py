"""Formats of dates and times, by language. Django finds them by the language's name."""
