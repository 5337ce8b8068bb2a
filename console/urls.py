"""The table of the console's pages, and the pages of sign-up and log-in beside it.

A page without a row is not reachable. The navigation shows the rows that have a section and a title, in this order.
"""

from allauth.account import views as account
from django.apps import apps
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from console import (
    analytics,
    batches,
    conversations,
    csv_batches,
    endpoints,
    events,
    home,
    keys,
    ledger,
    log_in,
    messages,
    numbers,
    outbox,
    request_log,
    sandbox_phone,
    search,
    send,
    settings,
    sign_up,
    team,
    templates,
)
from console.page import FORM, POST, READ, Entry, Page, Section
from console.visit import TEST
from gateway.roles import Area

# fmt: off
BILLING: list[Page] = []
"""None where billing is not installed."""

if apps.is_installed("billing"):
    from console import billing

    BILLING = [
        Page("billing", billing.billing, "console_billing", Area.BILLING, READ, (Section.ACCOUNT, "Billing")),
        Page("billing/autopay", billing.set_up_autopay, "console_billing_autopay", Area.BILLING, POST),
        Page("billing/profile", billing.profile, "console_billing_profile", Area.BILLING, FORM),
        Page("billing/statement", billing.statement, "console_statement", Area.BILLING, READ),
        Page("billing/pay", billing.pay_all, "console_pay_all", Area.BILLING, POST),
        Page("billing/invoices/<str:invoice_id>", billing.invoice, "console_invoice", Area.BILLING, READ),
        Page("billing/invoices/<str:invoice_id>/pay", billing.pay, "console_invoice_pay", Area.BILLING, POST),
        Page("billing/credit-notes/<str:credit_note_id>", billing.credit_note, "console_credit_note",
             Area.BILLING, READ),
    ]

PAGES = [
    Page("", home.home, "console", Area.OWN, READ, (Section.OVERVIEW, "Home")),
    Page("first-steps", home.first_steps, "console_first_steps", Area.OWN, READ),
    Page("preferences", home.preferences, "console_preferences", Area.OWN, POST),
    Page("search", search.search_page, "console_search", Area.OWN, READ),
    Page("search/hits", search.search_hits, "console_search_hits", Area.OWN, READ),
    Page("conversations", conversations.conversation_list, "console_conversations",
         Area.CONVERSATIONS, READ, (Section.OVERVIEW, "Conversations")),
    Page("conversations/rows", conversations.rows, "console_conversation_rows", Area.CONVERSATIONS, READ),
    Page("conversations/live", conversations.live, "console_conversations_live", Area.CONVERSATIONS, READ),
    Page("conversations/on", conversations.turn_on, "console_conversations_on", Area.INTEGRATION, POST),
    Page("conversations/off", conversations.turn_off, "console_conversations_off", Area.INTEGRATION, FORM),
    Page("conversations/file", conversations.file, "console_conversation_file", Area.CONVERSATIONS, READ),
    Page("conversations/<str:number_id>/<str:customer_id>", conversations.conversation, "console_conversation",
         Area.CONVERSATIONS, FORM),
    Page("conversations/<str:number_id>/<str:customer_id>/messages", conversations.thread,
         "console_conversation_messages", Area.CONVERSATIONS, READ),
    Page("conversations/<str:number_id>/<str:customer_id>/variables", conversations.variables,
         "console_conversation_variables", Area.CONVERSATIONS, READ),
    Page("figures", analytics.figures, "console_figures", Area.INTEGRATION, READ, (Section.OVERVIEW, "Figures")),
    Page("ledger", ledger.ledger, "console_ledger", Area.INTEGRATION, READ, (Section.OVERVIEW, "Daily ledger")),
    Page("send", send.send, "console_send", Area.INTEGRATION, FORM, (Section.TRY, "Send a test")),
    Page("send/variables", send.variables, "console_send_variables", Area.INTEGRATION, READ),
    Page("send/events", send.events, "console_send_events", Area.INTEGRATION, READ),
    Page("phone", sandbox_phone.phone, "console_phone",
         Area.INTEGRATION, READ, (Section.TRY, "Test phone"), environment=TEST),
    Page("phone/thread", sandbox_phone.thread, "console_phone_thread", Area.INTEGRATION, READ, environment=TEST),
    Page("phone/begin", sandbox_phone.begin, "console_phone_begin", Area.INTEGRATION, POST, environment=TEST),
    Page("phone/write", sandbox_phone.write, "console_phone_write", Area.INTEGRATION, POST, environment=TEST),
    Page("phone/file", sandbox_phone.file, "console_phone_file", Area.INTEGRATION, READ, environment=TEST),
    Page("messages", messages.message_list, "console_messages",
         Area.INTEGRATION, READ, (Section.MESSAGES, "Messages")),
    Page("messages/<path:message_id>", messages.message, "console_message", Area.INTEGRATION, READ),
    Page("batches", batches.batch_list, "console_batches", Area.INTEGRATION, READ, (Section.MESSAGES, "Batches")),
    Page("batches/file", csv_batches.upload, "console_csv_upload", Area.INTEGRATION, FORM),
    Page("batches/file/<uuid:file_id>", csv_batches.columns, "console_csv_columns", Area.INTEGRATION, READ),
    Page("batches/file/<uuid:file_id>/start", csv_batches.start, "console_csv_start", Area.INTEGRATION, POST),
    Page("batches/file/<uuid:file_id>/problems.csv", csv_batches.problems_csv, "console_csv_problems",
         Area.INTEGRATION, READ),
    Page("batches/<str:batch_id>", batches.batch, "console_batch", Area.INTEGRATION, READ),
    Page("batches/<str:batch_id>/progress", batches.progress, "console_batch_progress", Area.INTEGRATION, READ),
    Page("batches/<str:batch_id>/failed.csv", batches.failed_csv, "console_batch_failed", Area.INTEGRATION, READ),
    Page("batches/<str:batch_id>/cancel", batches.cancel, "console_batch_cancel", Area.INTEGRATION, POST),
    Page("batches/<str:batch_id>/retry", batches.retry, "console_batch_retry", Area.INTEGRATION, POST),
    Page("templates", templates.template_list, "console_templates",
         Area.INTEGRATION, READ, (Section.MESSAGES, "Templates")),
    Page("templates/new", templates.new, "console_template_new", Area.INTEGRATION, FORM),
    Page("templates/new/preview", templates.preview, "console_template_preview", Area.INTEGRATION, POST),
    Page("templates/sync", templates.sync_templates, "console_templates_sync", Area.INTEGRATION, POST),
    Page("templates/<str:template_id>", templates.template, "console_template", Area.INTEGRATION, READ),
    Page("templates/<str:template_id>/edit", templates.edit, "console_template_edit", Area.INTEGRATION, FORM),
    Page("templates/<str:template_id>/edit/preview", templates.preview, "console_template_edit_preview",
         Area.INTEGRATION, POST),
    Page("templates/<str:template_id>/delete", templates.delete, "console_template_delete", Area.INTEGRATION, FORM),
    Page("numbers", numbers.number_list, "console_numbers", Area.INTEGRATION, READ, (Section.MESSAGES, "Numbers")),
    Page("numbers/connect", numbers.connect, "console_connect", Area.INTEGRATION, POST),
    Page("numbers/<str:phone_number_id>", numbers.number, "console_number", Area.INTEGRATION, READ),
    Page("numbers/<str:phone_number_id>/refresh", numbers.refresh, "console_number_refresh", Area.INTEGRATION, POST),
    Page("numbers/<str:phone_number_id>/subscribe", numbers.subscribe, "console_number_subscribe",
         Area.INTEGRATION, POST),
    Page("numbers/<str:phone_number_id>/register", numbers.register, "console_number_register",
         Area.INTEGRATION, POST),
    Page("numbers/<str:phone_number_id>/profile", numbers.profile, "console_number_profile", Area.INTEGRATION, FORM),
    Page("numbers/<str:phone_number_id>/release", numbers.release, "console_number_release", Area.INTEGRATION, FORM),
    Page("webhooks", endpoints.endpoint_list, "console_endpoints",
         Area.INTEGRATION, FORM, (Section.WEBHOOKS, "Webhooks")),
    Page("webhooks/<uuid:endpoint_id>", endpoints.endpoint, "console_endpoint", Area.INTEGRATION, READ),
    Page("webhooks/<uuid:endpoint_id>/change", endpoints.change, "console_endpoint_change", Area.INTEGRATION, FORM),
    Page("webhooks/<uuid:endpoint_id>/verify", endpoints.verify, "console_endpoint_verify", Area.INTEGRATION, POST),
    Page("webhooks/<uuid:endpoint_id>/resume", endpoints.resume, "console_endpoint_resume", Area.INTEGRATION, POST),
    Page("webhooks/<uuid:endpoint_id>/pause", endpoints.pause, "console_endpoint_pause", Area.INTEGRATION, POST),
    Page("webhooks/<uuid:endpoint_id>/example", endpoints.example, "console_endpoint_example", Area.INTEGRATION, POST),
    Page("webhooks/<uuid:endpoint_id>/secret", endpoints.rotate, "console_endpoint_secret", Area.INTEGRATION, POST),
    Page("webhooks/<uuid:endpoint_id>/recover", endpoints.recover, "console_endpoint_recover", Area.INTEGRATION, POST),
    Page("webhooks/<uuid:endpoint_id>/delete", endpoints.delete, "console_endpoint_delete", Area.INTEGRATION, FORM),
    Page("deliveries", events.delivery_list, "console_deliveries",
         Area.INTEGRATION, READ, (Section.WEBHOOKS, "Deliveries")),
    Page("deliveries/<str:delivery_id>", events.delivery, "console_delivery", Area.INTEGRATION, READ),
    Page("deliveries/<str:delivery_id>/again", events.send_again, "console_delivery_again", Area.INTEGRATION, POST),
    Page("live", events.live, "console_live", Area.INTEGRATION, READ),
    Page("events", events.event_list, "console_events", Area.INTEGRATION, READ, (Section.WEBHOOKS, "Events")),
    Page("events/<str:event_id>", events.event, "console_event", Area.INTEGRATION, READ),
    Page("api-keys", keys.key_list, "console_api_keys", Area.INTEGRATION, FORM, (Section.DEVELOPERS, "API keys")),
    Page("api-keys/<uuid:key_id>/rotate", keys.rotate_key, "console_rotate_key", Area.INTEGRATION, FORM),
    Page("api-keys/<uuid:key_id>/revoke", keys.revoke_key, "console_revoke_key", Area.INTEGRATION, FORM),
    Page("device", log_in.device, "console_device", Area.INTEGRATION, FORM),
    Page("requests", request_log.request_list, "console_requests",
         Area.INTEGRATION, READ, (Section.DEVELOPERS, "Request log")),
    Page("requests/<str:request_id>", request_log.one_request, "console_request", Area.INTEGRATION, READ),
    *BILLING,
    Page("team", team.team, "console_team", Area.SETTINGS, FORM, (Section.ACCOUNT, "Team")),
    Page("team/people/<int:user_id>/role", team.change_role, "console_team_role", Area.SETTINGS, FORM),
    Page("team/people/<int:user_id>/remove", team.remove, "console_team_remove", Area.SETTINGS, FORM),
    Page("team/invitations/<uuid:invitation_id>/again", team.send_again, "console_team_again", Area.SETTINGS, POST),
    Page("team/invitations/<uuid:invitation_id>/withdraw", team.withdraw, "console_team_withdraw",
         Area.SETTINGS, POST),
    Page("settings", settings.settings_page, "console_settings", Area.SETTINGS, FORM, (Section.ACCOUNT, "Settings")),
    Page("settings/audit", settings.audit_log, "console_audit", Area.SETTINGS, READ),
    Page("application", sign_up.application, "console_application", Area.SETTINGS, FORM),
]
# fmt: on

ENTRIES = sorted(
    [
        *filter(None, (page.entry() for page in PAGES)),
        Entry(Section.ACCOUNT, "Security", "mfa_index", "/second-factor"),
    ],
    key=lambda entry: list(Section).index(entry.section),
)

urlpatterns = [
    path("", home.root, name="root"),
    *(page.pattern() for page in PAGES),
    path("sign-up", sign_up.sign_up, name="account_signup"),
    path("sign-up/sent", sign_up.sign_up_sent, name="sign_up_sent"),
    path("sign-up/confirm/<str:token>", sign_up.confirm, name="sign_up_confirm"),
    path("invitation/<str:token>", team.invitation, name="invitation"),
    path("outbox", outbox.mail_list, name="outbox"),
    path("outbox/<int:mail_id>", outbox.one_mail, name="outbox_mail"),
    path("login", account.login, name="account_login"),
    path("logout", account.logout, name="account_logout"),
    path("inactive", account.account_inactive, name="account_inactive"),
    path("reauthenticate", account.reauthenticate, name="account_reauthenticate"),
    path("password/change", account.password_change, name="account_change_password"),
    # Somebody without a password, who logs in by passkey, gets the first by mail, as a forgotten one.
    path(
        "password/set",
        RedirectView.as_view(pattern_name="account_reset_password"),
        name="account_set_password",
    ),
    path("password/reset", account.password_reset, name="account_reset_password"),
    path("password/reset/sent", account.password_reset_done, name="account_reset_password_done"),
    path(
        "password/reset/done",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "second-factor/webauthn/keys/<int:pk>/remove/",
        log_in.RemovePasskey.as_view(),
        name="mfa_remove_webauthn",
    ),
    path("second-factor/", include("allauth.mfa.urls")),
]
