"""Producers name tasks: every name is a registered task, and an unavailable broker loses no work."""

import re
from pathlib import Path

import pytest
from kombu.exceptions import OperationalError

from gateway.celery import app
from gateway.task_queue import enqueue
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
