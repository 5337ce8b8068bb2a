"""Staff admin of billing: lists of its rows, and the actions that staff take on invoices and payments."""

from billing.admin import accounts, invoices, payments
from tenants.staff.navigation import NavigationLink, register_navigation

__all__ = ["accounts", "invoices", "payments"]

register_navigation(
    "Billing",
    NavigationLink("Invoices", "receipt_long", "admin:billing_invoice_changelist"),
    NavigationLink("Accounting", "bar_chart", "admin:billing_invoice_accounting"),
    NavigationLink("Credit notes", "undo", "admin:billing_creditnote_changelist"),
    NavigationLink("Payments", "payments", "admin:billing_paymentattempt_changelist"),
    NavigationLink("Refunds", "currency_rupee", "admin:billing_refund_changelist"),
    NavigationLink("Mandates", "autorenew", "admin:billing_mandate_changelist"),
    NavigationLink("Monthly usage", "event_available", "admin:billing_billingsnapshot_changelist"),
    NavigationLink("Billing profiles", "badge", "admin:billing_billingprofile_changelist"),
    NavigationLink("Provider notices", "notifications", "admin:billing_providerevent_changelist"),
)
