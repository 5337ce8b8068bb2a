from django.urls import path

from messaging.template_views import TemplateSamplesView, TemplatesView
from messaging.views import MessagesView

urlpatterns = [
    path("messages", MessagesView.as_view({"post": "create"}), name="messages"),
    path("messages/read", MessagesView.as_view({"post": "read"}), name="messages-read"),
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
