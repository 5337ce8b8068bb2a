"""Billing routes outside of /v1: the provider's webhook and the pay page."""

from django.urls import path

from billing import pages
from billing.payments import webhook_views

urlpatterns = [
    path("internal/<str:provider>/webhook", webhook_views.receive, name="payment-webhook"),
    path("pay/<str:token>", pages.pay, name="pay"),
    path("pay/<str:token>/returned", pages.returned, name="pay-returned"),
]
