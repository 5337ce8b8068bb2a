"""The event log: publishing, the envelope, searches, retention."""
