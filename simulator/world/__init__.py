"""The simulated world: accounts, numbers, customers, conversations and media, and its snapshot."""
