"""The message log: each message with its statuses, and the customers of a number."""
