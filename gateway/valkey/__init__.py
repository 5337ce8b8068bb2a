"""Valkey: its address, the connection, the cache and the token bucket.

redis-py imports OpenTelemetry's metrics SDK wherever the SDK is installed. That costs every process memory and time for
metrics that nothing reads. This first import of redis-py hides the SDK, so redis-py treats it as not installed.
"""

import sys

_UNUSED = "opentelemetry.sdk.metrics"

if _UNUSED not in sys.modules:
    sys.modules[_UNUSED] = None  # type: ignore[assignment] # None makes an import of it fail
    import redis  # noqa: F401 - imported for this alone

    del sys.modules[_UNUSED]
