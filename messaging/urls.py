from django.urls import path

from messaging.views import MessagesView

urlpatterns = [
    path("messages", MessagesView.as_view({"post": "create"}), name="messages"),
    path("messages/read", MessagesView.as_view({"post": "read"}), name="messages-read"),
]
