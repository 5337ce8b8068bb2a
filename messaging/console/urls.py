"""Routes of the messaging pages in the console."""

from django.urls import path

from messaging.console import message_pages, pages, send_pages

urlpatterns = [
    path("console/send", send_pages.send, name="console_send"),
    path("console/send/events", send_pages.events, name="console_send_events"),
    path("console/messages", message_pages.message_list, name="console_messages"),
    path("console/messages/<path:message_id>", message_pages.message, name="console_message"),
    path("console/batches", pages.batch_list, name="console_batches"),
    path("console/batches/<str:batch_id>", pages.batch, name="console_batch"),
    path("console/batches/<str:batch_id>/cancel", pages.cancel, name="console_batch_cancel"),
    path("console/batches/<str:batch_id>/retry", pages.retry, name="console_batch_retry"),
    path("console/templates", pages.template_list, name="console_templates"),
    path("console/templates/sync", pages.sync_templates, name="console_templates_sync"),
]
