"""URLs of webhook endpoints, deliveries and events under `/v1`."""

from django.urls import path

from webhooks.analytics.views import AnalyticsView
from webhooks.stream import EventStreamView
from webhooks.views import DeliveriesView, EndpointsView, EventsView

urlpatterns = [
    path("webhooks", EndpointsView.as_view({"get": "list", "post": "create"}), name="webhooks"),
    path(
        "webhooks/<id:endpoint_id>",
        EndpointsView.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="webhook",
    ),
    path(
        "webhooks/<id:endpoint_id>/verify", EndpointsView.as_view({"post": "verify"}), name="webhook-verify"
    ),
    path(
        "webhooks/<id:endpoint_id>/resume", EndpointsView.as_view({"post": "resume"}), name="webhook-resume"
    ),
    path("webhooks/<id:endpoint_id>/test", EndpointsView.as_view({"post": "test"}), name="webhook-test"),
    path(
        "webhooks/<id:endpoint_id>/preview-filter",
        EndpointsView.as_view({"post": "preview_filter"}),
        name="webhook-preview-filter",
    ),
    path(
        "webhooks/<id:endpoint_id>/rotate-secret",
        EndpointsView.as_view({"post": "rotate_secret"}),
        name="webhook-rotate-secret",
    ),
    path(
        "webhooks/<id:endpoint_id>/replay",
        EndpointsView.as_view({"post": "replay"}),
        name="webhook-replay",
    ),
    path("webhook-deliveries", DeliveriesView.as_view({"get": "list"}), name="webhook-deliveries"),
    path(
        "webhook-deliveries/<str:delivery_id>",
        DeliveriesView.as_view({"get": "retrieve"}),
        name="webhook-delivery",
    ),
    path(
        "webhook-deliveries/<str:delivery_id>/replay",
        DeliveriesView.as_view({"post": "replay"}),
        name="webhook-delivery-replay",
    ),
    path("analytics", AnalyticsView.as_view({"get": "retrieve"}), name="analytics"),
    path("events", EventsView.as_view({"get": "list"}), name="events"),
    path("events/stream", EventStreamView.as_view({"get": "listen"}), name="event-stream"),
    path("events/<str:event_id>", EventsView.as_view({"get": "retrieve"}), name="event"),
]
