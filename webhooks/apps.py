from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "webhooks"
    verbose_name = "Webhooks"

    def ready(self) -> None:
        from webhooks import tables
        from webhooks.delivery import monitoring  # noqa: F401 - registers figures and partitioned tables
