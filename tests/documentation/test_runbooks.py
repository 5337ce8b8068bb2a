"""Commands of docs/runbooks.md run, and do what the page says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from tenants.models import OutboundMail
from tests.faults.service import database_url
from tests.fixtures import wait_until
from tests.pages import ROOT, marked_block, page

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "docs/runbooks.md"
RUN = {"mails that were given up", "sends that failed", "who waits for whom", "what grows"}


def typed(mark: str, **environment: str) -> str:
    """Run a code block in a shell, as on a host of the service. Returns its output."""
    python = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-ec", marked_block(PAGE, f"run: {mark}")],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": database_url(),
            "PATH": f"{python}:{os.environ['PATH']}",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_command_says_whether_it_is_run_here() -> None:
    text = page(PAGE)
    marks = re.findall(r"^<!-- (run|not run): (.+) -->\n```\w+$", text, re.MULTILINE)
    assert len(marks) == len(re.findall(r"^ *```\w+$", text, re.MULTILINE)), (
        "mark each block with how it is tested"
    )
    assert {name for how, name in marks if how == "run"} == RUN


def test_mails_that_were_given_up_are_tried_again() -> None:
    given_up = OutboundMail.objects.create(
        to="asha@example.test", subject="s", text="t", attempts=9, next_attempt_at=None
    )
    sent_at = given_up.created_at
    sent = OutboundMail.objects.create(
        to="asha@example.test", subject="s", text="t", attempts=1, next_attempt_at=None, sent_at=sent_at
    )
    typed("mails that were given up")
    for mail in (given_up, sent):
        mail.refresh_from_db()
    assert given_up.attempts == 0
    assert given_up.next_attempt_at is not None
    assert (sent.attempts, sent.next_attempt_at) == (1, None), "a mail that was sent is not sent again"


def test_sends_that_failed_get_the_name_by_which_they_are_replayed(tmp_path: Path) -> None:
    sends = tmp_path / "sends"
    sends.mkdir()
    for name in ("one.failed", "two.failed", "three.send"):
        (sends / name).write_text(name)
    typed("sends that failed", DATA_DIR=str(tmp_path))
    assert {path.name: path.read_text() for path in sends.iterdir()} == {
        "one.send": "one.failed",
        "two.send": "two.failed",
        "three.send": "three.send",
    }


@pytest.fixture
def holder() -> Iterator["psycopg.Connection[Any]"]:
    """A database session that holds a lock on a table."""
    with closing(psycopg.connect(database_url())) as session:
        session.execute("LOCK TABLE webhooks_endpoint IN ACCESS EXCLUSIVE MODE")
        yield session


def test_who_waits_for_whom_names_the_one_to_end(holder: "psycopg.Connection[Any]") -> None:
    def wait_for_the_table() -> list[Any]:
        with psycopg.connect(database_url()) as session:
            return session.execute("SELECT 1 FROM webhooks_endpoint LIMIT 1").fetchall()

    def look() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(marked_block(PAGE, "run: who waits for whom").replace("%", "%%"))
            return cursor.fetchall()

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait_for_the_table)
        wait_until(lambda: bool(look()), "nobody is waiting")
        [(_, waits_for, _, statement)] = look()
        assert waits_for == [holder.info.backend_pid]
        assert "webhooks_endpoint" in statement
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", waits_for)
        assert waiting.result(30) == []


def test_what_grows_names_the_tables_by_size() -> None:
    with connection.cursor() as cursor:
        cursor.execute(marked_block(PAGE, "run: what grows"))
        assert {"events", "event_payloads", "webhook_deliveries", "messages"} <= {
            table for table, _ in cursor.fetchall()
        }
