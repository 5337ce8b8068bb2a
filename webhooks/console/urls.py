"""Routes of the webhook pages in the console."""

from django.urls import path

from webhooks.console import endpoint_pages, figure_pages, live_pages, log_pages

_ONE = "console/webhooks/<uuid:endpoint_id>"
urlpatterns = [
    path("console/webhooks", endpoint_pages.endpoint_list, name="console_endpoints"),
    path(_ONE, endpoint_pages.endpoint, name="console_endpoint"),
    path(f"{_ONE}/change", endpoint_pages.change, name="console_endpoint_change"),
    path(f"{_ONE}/verify", endpoint_pages.verify, name="console_endpoint_verify"),
    path(f"{_ONE}/resume", endpoint_pages.resume, name="console_endpoint_resume"),
    path(f"{_ONE}/pause", endpoint_pages.pause, name="console_endpoint_pause"),
    path(f"{_ONE}/example", endpoint_pages.example, name="console_endpoint_example"),
    path(f"{_ONE}/secret", endpoint_pages.rotate, name="console_endpoint_secret"),
    path(f"{_ONE}/recover", endpoint_pages.recover, name="console_endpoint_recover"),
    path(f"{_ONE}/delete", endpoint_pages.delete, name="console_endpoint_delete"),
    path("console/deliveries", log_pages.delivery_list, name="console_deliveries"),
    path("console/deliveries/<str:delivery_id>", log_pages.delivery, name="console_delivery"),
    path("console/deliveries/<str:delivery_id>/again", log_pages.send_again, name="console_delivery_again"),
    path("console/live", live_pages.live, name="console_live"),
    path("console/figures", figure_pages.figures, name="console_figures"),
    path("console/events", log_pages.event_list, name="console_events"),
    path("console/events/<str:event_id>", log_pages.event, name="console_event"),
]
