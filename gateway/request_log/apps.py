"""Django app of the request log."""

from django.apps import AppConfig


class RequestLogConfig(AppConfig):
    name = "gateway.request_log"
    label = "request_log"
    verbose_name = "Request log"

    def ready(self) -> None:
        from gateway.api import access_log
        from gateway.request_log import recorder

        access_log.register(recorder.record)
