"""Business accounts and phone numbers: connecting, state, synchronisation, leaving, sandboxes."""
