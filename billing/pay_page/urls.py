"""Billing routes outside of /v1: the provider's webhook and the pay page."""

from django.urls import path

from billing.pay_page import views
from billing.payments import provider_notices

urlpatterns = [
    path("internal/<str:provider>/webhook", provider_notices.receive, name="payment-webhook"),
    path("pay/<str:token>", views.pay, name="pay"),
    path("pay/<str:token>/invoice", views.document, name="pay-invoice"),
    path("pay/<str:token>/returned", views.returned, name="pay-returned"),
]
