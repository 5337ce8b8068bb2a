"""Batches of CSV files that people upload in the console."""
