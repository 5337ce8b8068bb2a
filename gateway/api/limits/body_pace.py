"""How slowly the body of a request may arrive, at the web processes and at the edge."""

BODY_GRACE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""A body must arrive within the grace plus its size at this rate."""
