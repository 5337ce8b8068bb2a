"""The daily ledger: exact counts of a day's events and deliveries."""
