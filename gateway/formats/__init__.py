"""Formats of dates and times, found by Django under the name of the language."""
