"""Routes of the messaging pages in the console."""

from django.urls import path

from messaging.console import (
    batch_pages,
    csv_pages,
    draft_pages,
    ledger_pages,
    message_pages,
    send_pages,
    template_pages,
)

urlpatterns = [
    path("console/ledger", ledger_pages.ledger, name="console_ledger"),
    path("console/send", send_pages.send, name="console_send"),
    path("console/send/variables", send_pages.variables, name="console_send_variables"),
    path("console/send/events", send_pages.events, name="console_send_events"),
    path("console/messages", message_pages.message_list, name="console_messages"),
    path("console/messages/<path:message_id>", message_pages.message, name="console_message"),
    path("console/batches", batch_pages.batch_list, name="console_batches"),
    path("console/batches/file", csv_pages.upload, name="console_csv_upload"),
    path("console/batches/file/<uuid:file_id>", csv_pages.columns, name="console_csv_columns"),
    path("console/batches/file/<uuid:file_id>/start", csv_pages.start, name="console_csv_start"),
    path(
        "console/batches/file/<uuid:file_id>/problems.csv",
        csv_pages.problems_csv,
        name="console_csv_problems",
    ),
    path("console/batches/<str:batch_id>", batch_pages.batch, name="console_batch"),
    path("console/batches/<str:batch_id>/progress", batch_pages.progress, name="console_batch_progress"),
    path("console/batches/<str:batch_id>/failed.csv", batch_pages.failed_csv, name="console_batch_failed"),
    path("console/batches/<str:batch_id>/cancel", batch_pages.cancel, name="console_batch_cancel"),
    path("console/batches/<str:batch_id>/retry", batch_pages.retry, name="console_batch_retry"),
    path("console/templates", template_pages.template_list, name="console_templates"),
    path("console/templates/new", draft_pages.new, name="console_template_new"),
    path("console/templates/new/preview", draft_pages.preview, name="console_template_preview"),
    path("console/templates/sync", template_pages.sync_templates, name="console_templates_sync"),
    path("console/templates/<str:template_id>", template_pages.template, name="console_template"),
    path("console/templates/<str:template_id>/edit", draft_pages.edit, name="console_template_edit"),
    path(
        "console/templates/<str:template_id>/edit/preview",
        draft_pages.preview,
        name="console_template_edit_preview",
    ),
    path("console/templates/<str:template_id>/delete", template_pages.delete, name="console_template_delete"),
]
