"""The simulated data: accounts, numbers, customers, conversations and media, and their snapshot."""
