"""Logs: a credential that reaches a logger is cut out of its line, and every line has one form."""

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from django.conf import settings

from gateway.monitoring.logs import configure


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged, in the form of every process."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure(settings.LOGGING)
    yield written
    root.handlers[:], root.level = before, level


def _listen_alone(monkeypatch: pytest.MonkeyPatch, lines: io.StringIO) -> None:
    """Leave the service's own handler alone, as outside of tests: pytest adds its own to each test."""
    own = [handler for handler in logging.root.handlers if getattr(handler, "stream", None) is lines]
    monkeypatch.setattr(logging.root, "handlers", own)


@pytest.mark.parametrize(
    "secret",
    [
        "wb_live_" + "a1B2" * 10,
        "wb_test_" + "a1B2" * 10,
        "wbc_" + "a1-_" * 10,
        "whsec_MDEyMzQ1Njc4OWFiY2RlZg==",
        "EAAJZC" + "x9" * 40,
    ],
)
def test_a_credential_is_cut_out_of_every_line(
    lines: io.StringIO, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listen_alone(monkeypatch, lines)
    log = structlog.get_logger("gateway.test")
    for write in (log.info, log.warning):
        write("refused", key=secret, note=f"Authorization: Bearer {secret}!")
    logging.getLogger("some.library").warning("failed with %s", secret)
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["level"] for line in found] == ["info", "warning", "warning"]
    assert secret not in lines.getvalue()
    for line in found[:2]:
        assert line["event"] == "refused"
        assert line["note"].startswith("Authorization: Bearer ")


def test_ordinary_lines_have_the_form_of_warnings(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = structlog.get_logger("gateway.test").bind(tenant="one")
    log.info("done", rows=2)
    assert [record.levelname for record in caplog.records] == ["INFO"], "whoever listens besides hears it too"
    _listen_alone(monkeypatch, lines)
    log.info("done", rows=2)
    log.warning("done", rows=2)
    by_library, at_once, warning = (json.loads(line) for line in lines.getvalue().splitlines())
    assert by_library | {"timestamp": ""} == at_once | {"timestamp": ""}
    assert warning | {"timestamp": ""} == at_once | {"timestamp": "", "level": "warning"}
    assert len(caplog.records) == 1


def test_the_level_holds_for_ordinary_lines_and_a_stream_that_fails_ends_no_call(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    _listen_alone(monkeypatch, lines)
    log = structlog.get_logger("gateway.test")
    log.debug("too detailed")
    assert lines.getvalue() == ""

    def full(_: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lines, "write", full)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.info("done")
