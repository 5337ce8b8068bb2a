"""HTTP to addresses that customers chose: bounded in time and memory, never to private addresses."""
