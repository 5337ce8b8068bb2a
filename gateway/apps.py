"""Django app of what all apps build on."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        from gateway import (
            checks,  # noqa: F401 - registers the system checks
            server_checks,
            web_start,
        )
        from gateway.api import paths  # noqa: F401 - registers the path converters
        from gateway.database import pool
        from gateway.monitoring import (
            answer_metrics,
            sentry,
            tracing,
            valkey_metrics,  # noqa: F401 - adds its metrics
        )

        sentry.start()
        tracing.prepare()
        web_start.register(pool.begin)
        web_start.register(server_checks.report_at_start)
        web_start.register(answer_metrics.start_flushing)
        web_start.register(tracing.begin)
        post_migrate.connect(_maintain_partitions, dispatch_uid="partitions")


def _maintain_partitions(app_config: AppConfig, **_: Any) -> None:
    """Once per `migrate`, after the last app: the partitions that the new schema needs."""
    from django.apps import apps

    from gateway.database import partitions

    if app_config is list(apps.get_app_configs())[-1]:
        partitions.maintain()
