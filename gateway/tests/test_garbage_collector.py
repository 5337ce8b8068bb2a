"""A start of a process that looks for no garbage, and imports what the process runs and no more."""

import contextlib
import gc
import subprocess
import sys

from gateway import garbage_collector
from tests.pages import ROOT

START = """
import sys
from gateway.celery import app
app.loader.init_worker()
import gc
assert gc.isenabled()
assert "messaging.tasks.run_batches" in app.tasks
assert not {"gateway.urls", "tenants.pages", "unfold.admin"} & set(sys.modules)
from django.core import checks
assert not checks.run_checks(tags=["admin"])
from django.contrib import admin
assert admin.site._registry, "the check of the admin imported what it checks"
"""


def test_the_collector_is_paused_inside_and_on_again_after_it_also_after_an_error() -> None:
    with contextlib.suppress(ValueError), garbage_collector.paused():
        assert not gc.isenabled()
        with garbage_collector.paused():
            pass
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


def test_a_worker_starts_without_the_pages() -> None:
    started = subprocess.run(
        [sys.executable, "-c", START], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert started.returncode == 0, started.stderr
