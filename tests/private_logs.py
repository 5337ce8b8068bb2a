"""Makes a test fail in which our code or a library logs a credential or a phone number.

`redact` (`gateway/monitoring/logs.py`) removes credentials from each line, as the last defence. So the lines are read
before it, with the traces of their errors.
"""

import re
from collections.abc import MutableMapping
from typing import Any

from django.conf import settings

from gateway.monitoring import logs
from tests.watched import found

PRIVATE = re.compile(rf"{logs._SECRET.pattern}|\bEAA\w{{6}}|\b91[6-9]\d{{9}}\b")
"""A credential, or an Indian mobile number like those of the tests. Access tokens of tests may be short."""
OF_TESTS = {None, "gateway.test", "some.library"}
"""The loggers with which the tests of `redact` log credentials. A report to Sentry has none."""

_redact = logs.redact


def _read(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if event.get("logger") not in OF_TESTS and PRIVATE.search(line := str(event)):
        found.append(f"a credential or a phone number is logged: {line}")
    return _redact(logger, method, event)


logs.redact = _read
logs.configure(settings.LOGGING)
