"""URL of the upstream's webhook."""

from django.urls import path

from messaging.notifications.views import webhook

urlpatterns = [path("webhook", webhook, name="upstream-webhook")]
