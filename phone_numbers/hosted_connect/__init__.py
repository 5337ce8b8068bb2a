"""Connect sessions: the hosted page on which a customer connects its business account."""
