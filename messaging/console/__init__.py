"""The pages of messages, batches and templates in the console."""
