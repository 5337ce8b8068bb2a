"""Every task is started by something: by beat, or by a call that names it."""

import inspect
import re
from typing import Any

import pytest
from django.conf import settings

from gateway.celery import app
from tests.mutants.generated import PACKAGES, sources
from tests.pages import ROOT

SCHEDULE: dict[str, dict[str, Any]] = settings.CELERY_BEAT_SCHEDULE
HOUR = 3600.0


@pytest.fixture(scope="module")
def tasks() -> dict[str, Any]:
    """The tasks of the service, by name."""
    app.loader.import_default_modules()
    return {name: task for name, task in app.tasks.items() if name.partition(".")[0] in PACKAGES}


def test_beat_starts_each_task_that_needs_no_arguments(tasks: dict[str, Any]) -> None:
    """Such a task finds its work by itself, so it must run even if the message that started it is lost."""
    alone = {name for name, task in tasks.items() if not _parameters(task)}
    assert alone == {entry["task"] for entry in SCHEDULE.values()}


def test_each_other_task_is_started_by_a_call(tasks: dict[str, Any]) -> None:
    texts = [(ROOT / file).read_text() for file in sources(PACKAGES)]
    named = {name for text in texts for name in re.findall(r'"(\w+\.tasks\.\w+)"', text)}
    assert named <= set(tasks)
    assert {name for name, task in tasks.items() if _parameters(task)} <= named


def test_a_periodic_task_runs_each_hour_and_its_late_messages_expire() -> None:
    for name, entry in SCHEDULE.items():
        assert 15.0 <= entry["schedule"] <= HOUR, name
        assert entry.get("options") == {"expires": entry["schedule"]}, (
            f"{name} would pile up without a worker"
        )


def _parameters(task: Any) -> list[str]:
    found = inspect.signature(task.run).parameters.values()
    return [each.name for each in found if each.kind is not each.VAR_KEYWORD]
