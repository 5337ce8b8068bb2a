"""The Celery app of the three workers and of beat; `docs/operations.md` has their commands."""

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

app = Celery("gateway")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _configure_logs(**_: Any) -> None:
    """Celery logs through the same structured pipeline as the web processes."""
    from django.conf import settings

    from gateway.monitoring.logs import configure

    configure(settings.LOGGING)


@worker_ready.connect
def _check_servers(**_: Any) -> None:
    from gateway import server_checks

    server_checks.report_at_start()
