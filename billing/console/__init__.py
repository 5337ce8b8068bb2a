"""The billing pages of the console."""
