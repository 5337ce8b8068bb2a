"""Staff admin of billing: lists of its rows, and actions of staff on invoices and payments."""

from billing.admin import (
    cards,  # noqa: F401 - registers its part of the staff dashboard
    finders,  # noqa: F401 - registers its part of the staff's search
    invoices,
    payments,
    profiles_and_prices,
)
from billing.pricing.money import rupees
from tenants.audit_labels import register_unit
from tenants.staff.site import NavigationLink, register_navigation

__all__ = ["invoices", "payments", "profiles_and_prices"]

register_unit("paise", rupees)
register_navigation(
    "Billing",
    NavigationLink("Invoices", "receipt_long", "admin:billing_invoice_changelist"),
    NavigationLink("Accounting", "bar_chart", "admin:billing_invoice_accounting"),
    NavigationLink("Credit notes", "undo", "admin:billing_creditnote_changelist"),
    NavigationLink("Payments", "payments", "admin:billing_paymentattempt_changelist"),
    NavigationLink("Refunds", "currency_rupee", "admin:billing_refund_changelist"),
    NavigationLink("Staff acts", "how_to_reg", "admin:billing_staffact_changelist"),
    NavigationLink("Settlements", "account_balance", "admin:billing_settleditem_changelist"),
    NavigationLink("E-invoices", "qr_code", "admin:billing_invoice_einvoices"),
    NavigationLink("Mandates", "autorenew", "admin:billing_mandate_changelist"),
    NavigationLink("Monthly usage", "event_available", "admin:billing_billingsnapshot_changelist"),
    NavigationLink("Terms", "sell", "admin:billing_planversion_changelist"),
    NavigationLink("Billing profiles", "badge", "admin:billing_billingprofile_changelist"),
    NavigationLink("Provider notices", "notifications", "admin:billing_providerevent_changelist"),
)
