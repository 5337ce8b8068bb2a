"""Django app of webhook endpoints, the event log and deliveries."""

from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "webhooks"
    verbose_name = "Webhooks"

    def ready(self) -> None:
        from webhooks import tables  # noqa: F401 - registers the partitioned tables
        from webhooks.console import entries, figure_pages, finders  # noqa: F401 - register its part of the console
        from webhooks.delivery import monitoring  # noqa: F401 - registers health figures and metrics
        from webhooks.staff import businesses, cards  # noqa: F401 - register their part of the staff dashboard
        from webhooks.staff import finders as staff_finders  # noqa: F401 - registers its part of the staff's search
