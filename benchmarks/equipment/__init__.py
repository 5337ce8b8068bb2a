"""Equipment of the benchmarks: servers, senders, receivers, floors, and the table of results."""
