"""Messages: sending, batches, media, message templates, incoming notifications, the message log."""
