"""When one role of a process ends, the whole process ends."""

import os
import subprocess
import sys
import threading

import pytest

from gateway import __main__ as process

SCRIPT = """
import contextlib, signal, threading
from gateway import __main__ as process

signal.signal(signal.SIGTERM, process._exit)
asked = threading.Event()
with process._in_thread("role", {work}, asked.set):
    {beside}
"""


@pytest.mark.parametrize(
    ("work", "beside", "status"),
    [
        pytest.param(
            "lambda: None", "threading.Event().wait(60)", 1, id="a role that returns ends the process"
        ),
        pytest.param("lambda: 1 / 0", "threading.Event().wait(60)", 1, id="so does one that fails"),
        pytest.param("asked.wait", "pass", 0, id="one that was asked to end does not"),
        pytest.param("asked.wait", "signal.raise_signal(signal.SIGTERM)", 0, id="nor does a stop of all"),
    ],
)
def test_a_role_that_ends_unasked_ends_the_process_as_failed(work: str, beside: str, status: int) -> None:
    script = SCRIPT.format(work=work, beside=beside)
    ended = subprocess.run([sys.executable, "-c", script], timeout=50, capture_output=True)
    assert ended.returncode == status, ended.stderr.decode()


def test_a_beat_that_ends_unasked_beside_a_worker_ends_the_process_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(process, "_exit_code", 0)
    monkeypatch.setattr(os, "kill", lambda *_: ended.set())
    monkeypatch.setattr(process, "_beat", lambda: (lambda: None, lambda: None))
    monkeypatch.setattr(process, "_work", lambda queues, name: 0 if ended.wait(30) else 99)
    assert process._run(("tasks", "beat"), None, (), ["default"], "name") == 1


def test_django_is_set_up_without_views_and_staff_pages() -> None:
    """Every role imports what the set-up imports, even a role that answers no request."""
    program = "import django, sys; django.setup(); print(*sys.modules)"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "gateway.settings"}
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    assert {"rest_framework.views", "tenants.staff.site"} & set(shown.stdout.split()) == set()
