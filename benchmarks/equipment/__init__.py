"""Equipment of the benchmarks: servers, senders, receivers, floors, the table of results."""
