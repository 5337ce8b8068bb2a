"""Django app of the request log."""

from django.apps import AppConfig


class RequestLogConfig(AppConfig):
    name = "gateway.request_log"
    label = "request_log"
    verbose_name = "Request log"

    def ready(self) -> None:
        from gateway.api import finished_calls
        from gateway.request_log import (
            partitioned_tables,  # noqa: F401 - registers the partitioned table
            recorder,
        )

        finished_calls.register(recorder.record)
