"""URLs of messages, batches, media and templates under `/v1`."""

from django.urls import path

from messaging.batches.scheduled_views import ScheduledView
from messaging.batches.views import BatchesView, BatchView
from messaging.daily_ledger.views import LedgerView, UsageView
from messaging.data_views import ErasuresView, ExportsView
from messaging.flows.views import FlowEndpointView
from messaging.media.views import MediaView
from messaging.message_log.views import CustomersView, OptOutsView
from messaging.message_templates.views import TemplateSamplesView, TemplatesView
from messaging.sending.views import MessagesView

_FLOW_ENDPOINT = "numbers/<str:phone_number_id>/flow-endpoint"

urlpatterns = [
    path("messages", MessagesView.as_view({"get": "list", "post": "create"}), name="messages"),
    path("messages/read", MessagesView.as_view({"post": "read"}), name="messages-read"),
    path("messages/batch", BatchesView.as_view({"get": "list", "post": "create"}), name="batches"),
    path(
        "messages/batch/<str:batch_id>",
        BatchView.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="batch",
    ),
    path("messages/batch/<str:batch_id>/items", BatchesView.as_view({"get": "items"}), name="batch-items"),
    path(
        "messages/batch/<str:batch_id>/cancel", BatchesView.as_view({"post": "cancel"}), name="batch-cancel"
    ),
    path("messages/batch/<str:batch_id>/retry", BatchesView.as_view({"post": "retry"}), name="batch-retry"),
    path(
        "messages/scheduled",
        ScheduledView.as_view({"get": "list", "post": "create"}),
        name="scheduled-messages",
    ),
    path(
        "messages/scheduled/<str:scheduled_id>",
        ScheduledView.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="scheduled-message",
    ),
    path(
        "messages/scheduled/<str:scheduled_id>/cancel",
        ScheduledView.as_view({"post": "cancel"}),
        name="scheduled-message-cancel",
    ),
    # A wamid may contain slashes. So every path that no route above matches is a message.
    path("messages/<path:message_id>", MessagesView.as_view({"get": "retrieve"}), name="message"),
    path(
        "numbers/<str:phone_number_id>/customers/<str:customer_id>",
        CustomersView.as_view({"get": "retrieve"}),
        name="customer",
    ),
    path("opt-outs", OptOutsView.as_view({"get": "list"}), name="opt-outs"),
    path(
        _FLOW_ENDPOINT,
        FlowEndpointView.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
        name="flow-endpoint",
    ),
    path(
        f"{_FLOW_ENDPOINT}/rotate-key",
        FlowEndpointView.as_view({"post": "rotate_key"}),
        name="flow-endpoint-key",
    ),
    path(
        f"{_FLOW_ENDPOINT}/rotate-secret",
        FlowEndpointView.as_view({"post": "rotate_secret"}),
        name="flow-endpoint-secret",
    ),
    path(
        "customers/<str:customer_id>/data", ErasuresView.as_view({"delete": "destroy"}), name="customer-data"
    ),
    path("erasures", ErasuresView.as_view({"get": "list"}), name="erasures"),
    path("erasures/<id:erasure_id>", ErasuresView.as_view({"get": "retrieve"}), name="erasure"),
    path("exports", ExportsView.as_view({"post": "create"}), name="exports"),
    path("exports/<id:export_id>", ExportsView.as_view({"get": "retrieve"}), name="export"),
    path("exports/<id:export_id>/file", ExportsView.as_view({"get": "file"}), name="export-file"),
    path("ledger", LedgerView.as_view({"get": "retrieve"}), name="ledger"),
    path("usage", UsageView.as_view({"get": "list"}), name="usage"),
    path("media", MediaView.as_view({"post": "create"}), name="media"),
    path(
        "media/<str:media_id>", MediaView.as_view({"get": "retrieve", "delete": "destroy"}), name="media-one"
    ),
    path("templates", TemplatesView.as_view({"get": "list", "post": "create"}), name="templates"),
    path("templates/sync", TemplatesView.as_view({"post": "sync"}), name="templates-sync"),
    path("templates/library", TemplatesView.as_view({"get": "library"}), name="template-library"),
    path(
        "templates/media-handle",
        TemplateSamplesView.as_view({"post": "create"}),
        name="template-media-handle",
    ),
    path(
        "templates/<str:template_id>",
        TemplatesView.as_view({"get": "retrieve", "post": "edit", "delete": "destroy"}),
        name="template",
    ),
]
