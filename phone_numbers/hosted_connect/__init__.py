"""Connect sessions: the hosted page on which a business connects its account."""
