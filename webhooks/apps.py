"""Django app of webhook endpoints, the event log and deliveries."""

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "webhooks"
    verbose_name = "Webhooks"

    def ready(self) -> None:
        from webhooks import partitioned_tables  # noqa: F401 - registers the partitioned tables
        from webhooks.delivery import monitoring  # noqa: F401 - registers health figures and metrics
