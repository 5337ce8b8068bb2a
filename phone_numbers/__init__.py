"""Business accounts and phone numbers: connecting, state, synchronisation, leaving, test worlds."""
