"""The pages of numbers and accounts in the console."""
