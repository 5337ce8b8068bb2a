"""Django app of the request log."""

from django.apps import AppConfig


class RequestLogConfig(AppConfig):
    name = "gateway.request_log"
    label = "request_log"
    verbose_name = "Request log"

    def ready(self) -> None:
        from gateway.api import finished
        from gateway.request_log import (
            recorder,
            tables,  # noqa: F401 - registers the partitioned table
        )

        finished.register(recorder.record)
