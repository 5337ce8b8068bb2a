"""Routes of the billing pages in the console."""

from django.urls import path

from billing.console import pages

urlpatterns = [
    path("console/billing", pages.billing, name="console_billing"),
    path("console/billing/autopay", pages.set_up_autopay, name="console_billing_autopay"),
    path("console/billing/profile", pages.profile, name="console_billing_profile"),
    path("console/billing/invoices/<str:invoice_id>", pages.invoice, name="console_invoice"),
    path("console/billing/invoices/<str:invoice_id>/pay", pages.pay, name="console_invoice_pay"),
    path("console/billing/credit-notes/<str:credit_note_id>", pages.credit_note, name="console_credit_note"),
]
