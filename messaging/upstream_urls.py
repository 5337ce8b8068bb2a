from django.urls import path

from messaging.upstream_views import webhook

urlpatterns = [path("webhook", webhook, name="upstream-webhook")]
