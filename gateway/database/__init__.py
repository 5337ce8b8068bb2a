"""Database access of all apps: connections, bulk statements, partitions, pruning, bounded lists, outages."""
