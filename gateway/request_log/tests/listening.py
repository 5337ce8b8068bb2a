"""A request log that records calls. A test decides when it is written."""

from collections.abc import Callable, Iterator

import pytest

from gateway.api import access_log
from gateway.request_log import recorder


def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Let the log record. Call the yielded function to write the records on the test's own connection."""
    monkeypatch.setattr(recorder._writer, "ask", lambda: None)
    access_log.register(recorder.record)
    yield recorder.write
    access_log.clear_listeners()
    recorder._buffer.take()
