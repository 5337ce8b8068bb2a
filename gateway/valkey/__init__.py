"""Valkey: its address, the connection, the cache and the token bucket kept in it.

redis-py imports OpenTelemetry's SDK of metrics wherever it is installed, which takes memory and time of every process
for metrics that nothing reads. Here its first import does not find the SDK, and takes that as not installed.
"""

import sys

_UNUSED = "opentelemetry.sdk.metrics"

if _UNUSED not in sys.modules:
    sys.modules[_UNUSED] = None  # type: ignore[assignment] # what makes an import fail
    import redis  # noqa: F401 - imported for this alone

    del sys.modules[_UNUSED]
