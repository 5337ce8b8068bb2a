"""Meta's notifications: their events, the facts of each change, and splitting by tenant. Pure functions."""
