"""The Graph API as the simulator answers it."""
