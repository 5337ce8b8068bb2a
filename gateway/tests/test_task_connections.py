"""The tasks of one worker thread share a database connection, like requests, but never a broken one."""

from collections.abc import Iterator

import pytest
from celery.fixups.django import DjangoWorkerFixup  # type: ignore[attr-defined] # missing in its stubs
from celery.signals import task_postrun, task_prerun
from django.db import OperationalError, connection
from structlog.testing import capture_logs

from gateway import celery
from gateway.celery import app
from gateway.tasks import maintain_partitions
from tests.database_settings import connected_with

pytestmark = pytest.mark.django_db(transaction=True)


def session() -> int:
    """The Postgres process that serves this thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (found,) = cursor.fetchone()
    return int(found)


@pytest.fixture(autouse=True)
def _as_in_a_worker(transactional_db: None) -> Iterator[None]:
    """Keep connections as a worker does, and connect the signal handlers that Celery calls around each task."""
    fixup = DjangoWorkerFixup(app)
    options = connection.settings_dict["OPTIONS"] | {"pool": None}
    with connected_with(CONN_MAX_AGE=600, OPTIONS=options):
        task_prerun.connect(fixup.on_task_prerun)
        task_postrun.connect(fixup.on_task_postrun)
        yield
        task_prerun.disconnect(fixup.on_task_prerun)
        task_postrun.disconnect(fixup.on_task_postrun)


def between_tasks() -> None:
    task_postrun.send(sender=maintain_partitions, task_id="1", task=maintain_partitions)
    task_prerun.send(sender=maintain_partitions, task_id="2", task=maintain_partitions)


def test_the_next_task_has_the_same_connection() -> None:
    first = session()
    between_tasks()
    assert session() == first


def test_a_connection_that_postgres_ended_is_replaced_before_the_next_task() -> None:
    first = session()
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [first])
    finally:
        other.close()
    between_tasks()
    assert session() != first


def test_a_connection_that_broke_in_a_task_is_closed_after_it() -> None:
    first = session()
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    between_tasks()
    assert session() != first


@pytest.mark.parametrize(("longest", "lines"), [(0.0, ["gateway.tasks.maintain_partitions"]), (3600.0, [])])
def test_a_task_that_took_long_is_logged(
    monkeypatch: pytest.MonkeyPatch, longest: float, lines: list[str]
) -> None:
    monkeypatch.setattr(celery, "LONG_SECONDS", longest)
    with capture_logs() as logged:
        maintain_partitions()
    assert [line["task"] for line in logged if line["event"] == "long_task"] == lines
