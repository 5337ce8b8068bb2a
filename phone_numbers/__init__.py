"""Business accounts and phone numbers: connecting, state, sync, release, sandboxes."""
