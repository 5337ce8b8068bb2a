"""The event log: publishing, the envelope, filters, searches, retention."""
