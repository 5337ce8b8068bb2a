"""Shapes of `/v1/billing*`: In shapes check, Out shapes describe what `answers.py` makes."""

import re
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from billing.models import Mandate
from billing.payments.mandates import DEFAULT_CAP_PAISE
from tenants.signup.tax_ids import ADDRESS_STATES

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class ReturnUrlIn(serializers.Serializer[dict[str, Any]]):
    return_url = serializers.CharField(required=False, allow_null=True, default=None, max_length=2048)

    def validate_return_url(self, value: str | None) -> str | None:
        """https, or http on this machine."""
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            host = parts.hostname
        except ValueError:
            raise serializers.ValidationError("Must be a URL.") from None
        allowed = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
        if not host or not allowed or parts.username is not None or re.search(r"[\s\0]", value):
            raise serializers.ValidationError("Must be an https URL; http is allowed for localhost.")
        return value


class MandateIn(ReturnUrlIn):
    method = serializers.ChoiceField(
        required=False, choices=Mandate.Method.choices, default=Mandate.Method.UPI
    )
    max_amount_paise = serializers.IntegerField(required=False, default=DEFAULT_CAP_PAISE, min_value=59_000)


class ProfileIn(serializers.Serializer[dict[str, Any]]):
    legal_name = serializers.CharField(required=False, max_length=200)
    address = serializers.CharField(required=False, max_length=500)
    city = serializers.CharField(required=False, max_length=100)
    pin = serializers.RegexField(r"^[1-9][0-9]{5}\Z", required=False)
    state_code = serializers.ChoiceField(required=False, choices=sorted(ADDRESS_STATES))
    tax_id = serializers.CharField(required=False, max_length=20)
    phone = serializers.RegexField(r"^\+[1-9][0-9]{7,14}\Z", required=False)


class PlanOut(serializers.Serializer[Any]):
    code = serializers.CharField()
    currency = serializers.CharField()
    first_number_paise = serializers.IntegerField()
    additional_number_paise = serializers.IntegerField()
    gst_percent = serializers.IntegerField()
    tax_inclusive = serializers.BooleanField()


class BilledNumberOut(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField()
    display_phone_number = serializers.CharField()
    active_since = serializers.DateTimeField()


class NextChargeOut(serializers.Serializer[Any]):
    period = serializers.CharField()
    invoice_on = serializers.DateField()
    numbers = serializers.IntegerField()
    subtotal_paise = serializers.IntegerField()
    tax_paise = serializers.IntegerField()
    total_paise = serializers.IntegerField()
    estimate = serializers.BooleanField()


class MandateOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    status = serializers.CharField()
    method = serializers.ChoiceField(choices=Mandate.Method.choices)
    instrument = serializers.CharField(allow_null=True)
    max_amount_paise = serializers.IntegerField()
    expires_at = serializers.DateTimeField(allow_null=True)


class ProfileOut(serializers.Serializer[Any]):
    legal_name = serializers.CharField(allow_null=True)
    tax_id_type = serializers.CharField(allow_null=True)
    tax_id = serializers.CharField(allow_null=True)
    state_code = serializers.CharField(allow_null=True)
    address = serializers.CharField(allow_null=True)
    city = serializers.CharField(allow_null=True)
    pin = serializers.CharField(allow_null=True)
    phone = serializers.CharField(allow_null=True)
    complete = serializers.BooleanField()
    missing = serializers.ListField(child=serializers.CharField())


class BillingOut(serializers.Serializer[Any]):
    billing_status = serializers.CharField(allow_null=True)
    trial_ends_at = serializers.DateTimeField(allow_null=True)
    past_due_since = serializers.DateTimeField(allow_null=True)
    restricted = serializers.BooleanField()
    plan = PlanOut()
    active_numbers = serializers.IntegerField()
    numbers = BilledNumberOut(many=True)
    next_charge = NextChargeOut(allow_null=True)
    mandate = MandateOut(allow_null=True)
    amount_due_paise = serializers.IntegerField()
    open_invoices = serializers.IntegerField()
    billing_profile = ProfileOut()


class NewMandateOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    status = serializers.CharField()
    method = serializers.ChoiceField(choices=Mandate.Method.choices)
    max_amount_paise = serializers.IntegerField()
    authorization_url = serializers.CharField(allow_null=True)
    authorization_expires_at = serializers.DateTimeField(allow_null=True)
    replaces = serializers.CharField(allow_null=True)


class InvoiceSummaryOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    number = serializers.CharField()
    period = serializers.CharField()
    status = serializers.CharField()
    issued_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField()
    paid_at = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField()
    active_numbers = serializers.IntegerField()
    total_paise = serializers.IntegerField()
    amount_due_paise = serializers.IntegerField()


class InvoiceOut(InvoiceSummaryOut):
    seller = serializers.DictField()
    buyer = serializers.DictField()
    place_of_supply = serializers.CharField()
    supply_type = serializers.CharField()
    reverse_charge = serializers.BooleanField()
    lines = serializers.ListField(child=serializers.DictField())
    subtotal_paise = serializers.IntegerField()
    taxes = serializers.ListField(child=serializers.DictField())
    round_off_paise = serializers.IntegerField()
    total_in_words = serializers.CharField()
    amount_paid_paise = serializers.IntegerField()
    credited_paise = serializers.IntegerField()
    credit_notes = serializers.ListField(child=serializers.DictField())
    attempts = serializers.ListField(child=serializers.DictField())
    irn = serializers.CharField(allow_null=True)


class PaymentOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    status = serializers.CharField()
    attempt = serializers.DictField()
    payment_url = serializers.CharField()
    expires_at = serializers.DateTimeField()


class LastSnapshotOut(serializers.Serializer[Any]):
    period = serializers.CharField()
    active_numbers = serializers.IntegerField()
    total_paise = serializers.IntegerField()


class BilledTenantOut(serializers.Serializer[Any]):
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    billing_status = serializers.CharField(allow_null=True)
    past_due_since = serializers.DateTimeField(allow_null=True)
    last_snapshot = LastSnapshotOut(allow_null=True)
    open_invoices = serializers.IntegerField()


class AdminBillingOut(serializers.Serializer[Any]):
    billing_enabled = serializers.BooleanField()
    tenants = BilledTenantOut(many=True)
