"""URLs of billing under `/v1`."""

from django.urls import path

from billing.views import AdminBillingView, BillingView, CreditNotesView, InvoicesView

urlpatterns = [
    path("billing", BillingView.as_view({"get": "retrieve"}), name="billing"),
    path("billing/profile", BillingView.as_view({"patch": "update_profile"}), name="billing-profile"),
    path("billing/mandate", BillingView.as_view({"post": "create_mandate"}), name="billing-mandate"),
    path("billing/invoices", InvoicesView.as_view({"get": "list"}), name="billing-invoices"),
    path(
        "billing/invoices/<str:invoice_id>", InvoicesView.as_view({"get": "retrieve"}), name="billing-invoice"
    ),
    path("billing/invoices/<str:invoice_id>/pay", InvoicesView.as_view({"post": "pay"}), name="billing-pay"),
    path(
        "billing/credit-notes/<str:credit_note_id>",
        CreditNotesView.as_view({"get": "retrieve"}),
        name="billing-credit-note",
    ),
    path("admin/billing", AdminBillingView.as_view({"get": "retrieve"}), name="admin-billing"),
]
