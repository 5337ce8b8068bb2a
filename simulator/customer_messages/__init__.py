"""Messages that a simulated customer sends to a number."""
