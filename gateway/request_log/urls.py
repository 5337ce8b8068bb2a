"""URLs of the request log under `/v1`."""

from django.urls import path

from gateway.request_log.views import RequestsView

urlpatterns = [
    path("requests", RequestsView.as_view({"get": "list"}), name="requests"),
    path("requests/<str:request_id>", RequestsView.as_view({"get": "retrieve"}), name="request"),
]
