"""The database as all apps use it: connections, bulk statements, partitions, pruning, bounded lists, outages."""
