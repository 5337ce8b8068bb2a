"""Django app of the common parts."""

from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        from gateway import checks  # noqa: F401 - registers the system checks
        from gateway.api import (
            paths,  # noqa: F401 - registers the path converters
        )
        from gateway.monitoring import logs

        logs.start()
        post_migrate.connect(_maintain_partitions, dispatch_uid="partitions")


def _maintain_partitions(app_config: AppConfig, **_: Any) -> None:
    """Make the partitions that the new schema needs, once per `manage.py migrate`."""
    from gateway.database import partitions

    if is_last_migrated(app_config):
        partitions.maintain()


def is_last_migrated(app_config: AppConfig) -> bool:
    """Whether an app is the last one that gets `post_migrate`. Django sends the signal only to apps with models."""
    return app_config is [config for config in apps.get_app_configs() if config.models_module][-1]
