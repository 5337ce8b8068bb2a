"""Logs: a credential that reaches a logger is removed from the log line, and every line has the same form."""

import ast
import errno
import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import psycopg
import pytest
import structlog
from django.conf import settings
from django.db import DatabaseError, transaction

from gateway.monitoring.logs import configure, log_answer
from gateway.outbound.connection import Answer
from tenants.models import User
from tests.pages import ROOT
from web.admission import Credential


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The logged lines, written as in every process."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure(settings.LOGGING)
    yield written
    root.handlers[:], root.level = before, level


def _full(_: str) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "secret",
    [
        "wb_live_" + "a1B2" * 10,
        "wb_test_" + "a1B2" * 10,
        "wbc_" + "a1-_" * 10,
        "wbo_" + "a1-_" * 10,
        "wbr_" + "a1-_" * 5 + "." + "a1-_" * 10,
        "whsec_MDEyMzQ1Njc4OWFiY2RlZg==",
        "EAAJZC" + "x9" * 40,
    ],
)
def test_a_credential_is_cut_out_of_every_line(lines: io.StringIO, secret: str) -> None:
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


def test_an_access_token_within_a_link_is_cut_out(lines: io.StringIO) -> None:
    token = "EAAJZC" + "x9" * 40
    structlog.get_logger("gateway.test").info(
        "refused", link=f"https://shop.example/?next=%3Ftoken%3D{token}&a=1"
    )
    assert json.loads(lines.getvalue())["link"] == "https://shop.example/?next=%3Ftoken%3DEAA…&a=1"


def test_an_id_that_contains_the_beginning_of_an_access_token_is_whole(lines: io.StringIO) -> None:
    ids = ["req_01KBEAAQ8T5M7N3R6S4XHCW0YD", "evt_EAA12KB2Z9GVQ8T5M7N3R6S4X"]
    structlog.get_logger("gateway.test").info("seen", **{f"id_{at}": each for at, each in enumerate(ids)})
    assert [json.loads(lines.getvalue())[f"id_{at}"] for at in range(2)] == ids


@pytest.mark.django_db
def test_a_traceback_has_no_values_of_rows(lines: io.StringIO) -> None:
    email = "919812345678@shop.example"
    User.objects.create(email=email)
    log = structlog.get_logger("gateway.test")

    def fails_while_it_handles_the_error() -> User:
        try:
            with transaction.atomic():
                return User.objects.create(email=email)
        except DatabaseError:
            return dict[str, User]()["absent"]

    attempts: list[Callable[[], User]] = [
        lambda: User.objects.create(email=email),
        lambda: User.objects.raw(f"SELECT '{email}'::uuid AS id")[0],
        fails_while_it_handles_the_error,
    ]
    for fails in attempts:
        try:
            with transaction.atomic():
                fails()
        except (DatabaseError, KeyError):
            log.exception("failed")
    shown = [json.loads(line)["exception"] for line in lines.getvalue().splitlines()]
    assert "919812345678" not in "".join(shown)
    assert "psycopg.errors.UniqueViolation: tenants_user_email" in shown[0]
    assert "psycopg.errors.InvalidTextRepresentation: …" in shown[1]
    assert "psycopg.errors.UniqueViolation: tenants_user_email" in shown[2]
    assert all("test_logs.py" in each for each in shown)


def test_a_traceback_says_why_there_is_no_connection(lines: io.StringIO) -> None:
    log = structlog.get_logger("gateway.test")
    try:
        psycopg.connect("host=/absent")
    except psycopg.OperationalError:
        log.exception("failed")
    assert "No such file or directory" in json.loads(lines.getvalue())["exception"]


@pytest.mark.parametrize(
    ("logger", "least"),
    [
        ("some.library", logging.INFO),
        *((name, logging.WARNING) for name in ("urllib3", "aiohttp.access", "celery.beat")),
        *((name, logging.WARNING) for name in ("celery.app.trace", "celery.worker.strategy")),
        ("urllib3.connection", logging.ERROR),
        *((name, logging.CRITICAL) for name in ("aiokafka", "aiokafka.conn", "aiormq.connection")),
        ("django.request", logging.CRITICAL),
    ],
)
def test_libraries_log_no_addresses_and_repeat_no_lines(lines: io.StringIO, logger: str, least: int) -> None:
    levels = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    for level in levels:
        logging.getLogger(logger).log(level, "at kafka.shop.example")
    shown = [json.loads(line)["level"] for line in lines.getvalue().splitlines()]
    assert shown == [logging.getLevelName(level).lower() for level in levels if level >= least]


def test_the_level_holds_and_a_stream_that_fails_ends_no_call(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = structlog.get_logger("gateway.test")
    log.debug("too detailed")
    assert lines.getvalue() == ""

    monkeypatch.setattr(lines, "write", _full)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.info("done")


def test_the_line_of_an_answer_has_the_form_of_all_and_obeys_the_same(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    structlog.contextvars.clear_contextvars()
    log_answer(status=200)
    structlog.get_logger("gateway.request").info("request", status=200)
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    own, other = ({name: line[name] for name in line if name != "timestamp"} for line in found)
    assert own == other
    assert {len(line["timestamp"]) for line in found} == {len("2026-11-01T07:06:41.120345Z")}
    logging.getLogger().setLevel(logging.WARNING)
    log_answer(status=200)
    assert len(lines.getvalue().splitlines()) == 2
    logging.getLogger().setLevel(logging.INFO)
    monkeypatch.setattr(lines, "write", _full)
    log_answer(status=200)


HIDDEN = re.compile(
    r"access|key|raw|refresh|body_excerpt|client_key|device_code|secret_access_key"
    r"|(\w+_)?(access_token|body|password|pin|secret|token)"
)
"""Names of members with a credential, or with a text of a customer."""
SHOWN = {("Parameter", "key"), ("Described", "key"), ("Sent", "next")}
"""Harmless exceptions: a template parameter's name, an event's dedupe key, a dispatcher's id."""
PRODUCTION = ("billing", "console", "gateway", "messaging", "phone_numbers", "tenants", "web", "webhooks")


def fields_of_values() -> Iterator[tuple[str, ast.AnnAssign, bool]]:
    """Each field of a value class in production code: class, field, and whether the class's `__repr__` hides all
    fields.
    """
    for package in PRODUCTION:
        for file in (ROOT / package).rglob("*.py"):
            if {"tests", "migrations"} & set(file.parts):
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef) and _is_value(node):
                    hides = any(getattr(each, "name", "") == "__repr__" for each in node.body)
                    yield from (
                        (node.name, each, hides) for each in node.body if isinstance(each, ast.AnnAssign)
                    )


def _is_value(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return bool(bases & {"Struct", "NamedTuple"}) or "dataclass" in map(_name, node.decorator_list)


def _name(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def test_no_value_shows_a_credential_or_a_body() -> None:
    """An error, a log line or a trace may show the object's `__repr__`."""
    found = list(fields_of_values())
    assert len(found) > 700
    shown = set()
    for owner, each, hides in found:
        name, kind = ast.unparse(each.target), ast.unparse(each.annotation)
        is_text = kind.partition(" | ")[0] in {"str", "bytes", "bytearray"} or kind.startswith(
            "Mapping[str, Any]"
        )
        is_hidden = hides or (each.value is not None and "repr=False" in ast.unparse(each.value))
        if ((HIDDEN.fullmatch(name) and is_text) or "bytes" in kind.partition("[")[0]) and not is_hidden:
            shown.add((owner, name))
    assert shown == SHOWN


def test_what_hides_shows_its_type_alone() -> None:
    assert repr(Answer(status=200, error=None, ms=1, body=b"hush", retry_after=None)) == "<Answer>"
    assert f"{Credential('Bearer', 'hush')}" == "<Credential>"
