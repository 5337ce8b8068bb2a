"""Producers name tasks: every name is a registered task, and an unavailable broker loses no work."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kombu.exceptions import OperationalError

from console.tasks import write_export, write_exports
from gateway import task_queue
from gateway.celery import app
from gateway.task_queue import enqueue, in_turn
from messaging.tasks import erase_customers
from tests.pages import ROOT

APPS = ("gateway", "tenants", "webhooks", "phone_numbers", "messaging", "billing")


def sources() -> list[Path]:
    return [path for name in APPS for path in (ROOT / name).rglob("*.py") if "tests" not in path.parts]


def test_every_enqueued_name_is_a_task() -> None:
    app.loader.import_default_modules()
    named = {name for path in sources() for name in re.findall(r'enqueue\(\s*"([\w.]+)"', path.read_text())}
    assert named
    assert named <= set(app.tasks)


def test_tasks_are_queued_in_one_place() -> None:
    queuing = {
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if re.search(r"\.(apply_async|send_task|delay)\(", path.read_text())
    }
    assert queuing == {"gateway/task_queue.py"}


def test_a_broker_that_is_away_is_said_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OperationalError("Connection refused")

    monkeypatch.setattr(app, "send_task", unreachable)
    assert enqueue("tenants.tasks.send_mail", mail_id=1) is False


def test_a_task_reaches_the_queue_that_its_route_names() -> None:
    assert enqueue("webhooks.tasks.deliver_due", expires=5) is True
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("deliveries").get(timeout=5)
        assert message.headers["task"] == "webhooks.tasks.deliver_due"
        assert message.headers["expires"] is not None
        message.ack()


@pytest.mark.parametrize(
    ("task", "arguments", "queued"),
    [
        (erase_customers, {}, "messaging.tasks.erase_customers"),
        (write_exports, {}, "console.tasks.write_exports"),
        (write_export, {"export_id": str(UUID(int=0))}, "console.tasks.write_exports"),
    ],
)
def test_one_thread_runs_tasks_of_minutes_and_queues_those_that_it_put_off_once(
    monkeypatch: pytest.MonkeyPatch, task: Any, arguments: dict[str, Any], queued: str
) -> None:
    """The other threads send mails and read numbers meanwhile. No database is needed to see that."""
    sent: list[str] = []
    monkeypatch.setattr(task_queue, "enqueue", lambda name, **_: sent.append(name))
    with task_queue.long_task("of another business") as may_run:
        for _ in range(3):
            task(**arguments)
        assert (may_run, sent) == (True, [])
    assert sent == [queued]
    with task_queue.long_task(queued) as may_run:
        assert may_run
    assert sent == [queued]


def test_the_rows_of_tenants_are_taken_in_turn() -> None:
    """Even if each run takes only one row, no tenant waits for all rows of another."""
    large, small = UUID(int=1), UUID(int=2)
    rows = [(large, UUID(int=place)) for place in (11, 12, 13)] + [(small, UUID(int=21))]
    drawn = {tuple(key.int for key in in_turn(rows)) for _ in range(100)}
    assert drawn == {(11, 21, 12, 13), (21, 11, 12, 13)}
    assert in_turn([]) == []
