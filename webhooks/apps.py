"""Django app of webhook endpoints, the event log and deliveries."""

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "webhooks"
    verbose_name = "Webhooks"

    def ready(self) -> None:
        from webhooks.delivery import monitoring  # noqa: F401 - registers health figures and metrics
        from webhooks.events import retention  # noqa: F401 - registers the partitioned tables
