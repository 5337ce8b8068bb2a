"""HTTP to addresses that tenants chose: bounded in time and memory, never to private addresses."""
