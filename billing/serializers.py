"""Serializers of `/v1/billing*`. Classes named `…In` validate requests, classes named `…Out` describe responses."""

import re
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from billing import buyers, plan
from billing.models import (
    BillingProfile,
    BillingSnapshot,
    CreditNote,
    Invoice,
    InvoiceLine,
    Mandate,
    PaymentAttempt,
)
from billing.payments.mandates import DEFAULT_CAP_PAISE
from billing.pricing import gst
from billing.pricing.money import CURRENCY
from billing.tenant_overview import Overview
from gateway.api.validation import did_you_mean
from tenants.models import Tenant
from tenants.names import check_name
from tenants.signup.tax_ids import ADDRESS_STATES

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class ReturnUrlIn(serializers.Serializer[dict[str, Any]]):
    return_url = serializers.CharField(required=False, allow_null=True, default=None, max_length=2048)

    def validate_return_url(self, value: str | None) -> str | None:
        """Require https. An address of localhost may also have http."""
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
    legal_name = serializers.CharField(required=False, max_length=200, validators=[check_name])
    address = serializers.CharField(required=False, max_length=500, validators=[check_name])
    city = serializers.CharField(required=False, max_length=100, validators=[check_name])
    pin = serializers.RegexField(r"^[1-9][0-9]{5}\Z", required=False)
    state_code = serializers.ChoiceField(required=False, choices=sorted(ADDRESS_STATES))
    tax_id = serializers.CharField(required=False, max_length=20, validators=[check_name])
    phone = serializers.RegexField(r"^\+[1-9][0-9]{7,14}\Z", required=False)
    country = serializers.RegexField(r"^[A-Z]{2}\Z", required=False)
    tds_percent = serializers.ChoiceField(required=False, choices=buyers.TDS_RATES)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        if unknown := [name for name in data if name not in self.fields]:
            raise serializers.ValidationError(
                {name: f"There is no such member.{did_you_mean(name, self.fields)}" for name in unknown}
            )
        return values

    def validate_country(self, code: str) -> str:
        if code not in buyers.COUNTRIES:
            raise serializers.ValidationError("ISO 3166 has no such country. Two letters, e.g. IN.")
        return code


class PlanOut(serializers.Serializer[Any]):
    code = serializers.CharField()
    currency = serializers.CharField()
    first_number_paise = serializers.IntegerField()
    additional_number_paise = serializers.IntegerField()
    gst_percent = serializers.IntegerField()
    tax_inclusive = serializers.BooleanField()
    included_numbers = serializers.IntegerField()
    due_days = serializers.IntegerField()
    version = serializers.UUIDField(allow_null=True)


class BilledNumberOut(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField()
    display_phone_number = serializers.CharField()
    active_since = serializers.DateTimeField()


class ChargeLineOut(serializers.Serializer[plan.ChargeLine]):
    description = serializers.CharField()
    quantity = serializers.IntegerField()
    unit_paise = serializers.IntegerField()
    amount_paise = serializers.IntegerField()


class TaxOut(serializers.Serializer[gst.TaxRow]):
    type = serializers.CharField()
    percent = serializers.FloatField()
    amount_paise = serializers.IntegerField()

    def to_representation(self, row: gst.TaxRow) -> dict[str, Any]:
        return {**super().to_representation(row), "percent": row.percent}


class NextChargeOut(serializers.Serializer[Any]):
    period = serializers.CharField()
    invoice_on = serializers.DateField()
    numbers = serializers.IntegerField()
    lines = ChargeLineOut(many=True)
    taxes = TaxOut(many=True)
    subtotal_paise = serializers.IntegerField()
    tax_paise = serializers.IntegerField()
    total_paise = serializers.IntegerField()
    estimate = serializers.BooleanField(default=True)


class MandateOut(serializers.Serializer[Mandate]):
    id = serializers.CharField(source="public_id")
    status = serializers.CharField()
    method = serializers.ChoiceField(choices=Mandate.Method.choices)
    instrument = serializers.CharField(allow_null=True)
    max_amount_paise = serializers.IntegerField()
    expires_at = serializers.DateTimeField(allow_null=True)


class NewMandateOut(serializers.Serializer[Mandate]):
    id = serializers.CharField(source="public_id")
    status = serializers.CharField()
    method = serializers.ChoiceField(choices=Mandate.Method.choices)
    max_amount_paise = serializers.IntegerField()
    authorization_url = serializers.CharField(allow_null=True)
    authorization_expires_at = serializers.DateTimeField(allow_null=True)
    replaces = serializers.CharField(source="replaces.public_id", allow_null=True, default=None)


class EmptyAsNull(serializers.CharField):
    """A text that is null in the response when it is empty in the row."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)

    def to_representation(self, value: Any) -> Any:
        return super().to_representation(value) or None


class ProfileOut(serializers.Serializer[BillingProfile]):
    legal_name = EmptyAsNull()
    tax_id_type = EmptyAsNull()
    tax_id = EmptyAsNull()
    state_code = EmptyAsNull()
    address = EmptyAsNull()
    city = EmptyAsNull()
    pin = EmptyAsNull()
    phone = EmptyAsNull()
    country = serializers.CharField()
    tds_percent = serializers.IntegerField()
    complete = serializers.SerializerMethodField()
    missing = serializers.SerializerMethodField()

    def get_complete(self, profile: BillingProfile) -> bool:
        return not buyers.missing(profile)

    def get_missing(self, profile: BillingProfile) -> list[str]:
        return buyers.missing(profile)


class BillingOut(serializers.Serializer[Overview]):
    billing_status = serializers.ChoiceField(
        source="tenant.billing_status", choices=Tenant.BillingStatus.choices, allow_null=True
    )
    trial_ends_at = serializers.DateTimeField(source="tenant.trial_ends_at", allow_null=True)
    past_due_since = serializers.DateTimeField(source="tenant.past_due_since", allow_null=True)
    restricted = serializers.BooleanField(source="tenant.billing_restricted")
    plan = PlanOut()
    active_numbers = serializers.IntegerField()
    numbers = BilledNumberOut(many=True)
    next_charge = NextChargeOut(allow_null=True)
    mandate = MandateOut(allow_null=True)
    amount_due_paise = serializers.IntegerField()
    open_invoices = serializers.IntegerField()
    billing_profile = ProfileOut()


class InvoiceSummaryOut(serializers.Serializer[Invoice]):
    id = serializers.CharField(source="public_id")
    number = serializers.CharField()
    period = serializers.CharField()
    status = serializers.CharField()
    issued_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField()
    paid_at = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField(default=CURRENCY)
    active_numbers = serializers.IntegerField()
    total_paise = serializers.IntegerField()
    amount_due_paise = serializers.IntegerField()


class SellerOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    gstin = serializers.CharField()
    address = serializers.CharField()
    state_code = serializers.CharField()


class BuyerOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    gstin = serializers.CharField(allow_null=True)
    pan = serializers.CharField(allow_null=True)
    foreign_tax_id = serializers.CharField(allow_null=True, default=None)
    address = serializers.CharField(allow_null=True)
    state_code = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    country = serializers.CharField(default="IN")


class InvoiceLineOut(serializers.Serializer[InvoiceLine]):
    description = serializers.CharField()
    sac = serializers.CharField()
    quantity = serializers.IntegerField()
    unit_paise = serializers.IntegerField()
    amount_paise = serializers.IntegerField()
    gst_percent = serializers.IntegerField()
    plan_version = serializers.UUIDField(allow_null=True)


class InvoiceCreditOut(serializers.Serializer[CreditNote]):
    id = serializers.CharField(source="public_id")
    number = serializers.CharField()
    issued_at = serializers.DateTimeField()
    total_paise = serializers.IntegerField()
    reason = serializers.CharField()


class IntervalOut(serializers.Serializer[Any]):
    to = serializers.DateTimeField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {"from": serializers.DateTimeField(), **super().get_fields()}


class InvoicedNumberOut(serializers.Serializer[Any]):
    phone_number_id = serializers.CharField()
    display_phone_number = serializers.CharField()
    connected_seconds = serializers.IntegerField()
    intervals = IntervalOut(many=True)


class AttemptErrorOut(serializers.Serializer[Any]):
    code = serializers.CharField(allow_null=True, default=None)
    reason = serializers.CharField(allow_null=True, default=None)
    message = serializers.CharField(allow_null=True, default=None)


class PaymentAttemptOut(serializers.Serializer[PaymentAttempt]):
    id = serializers.CharField(source="public_id")
    kind = serializers.CharField()
    status = serializers.CharField()


class AttemptOut(PaymentAttemptOut):
    scheduled_for = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    error = AttemptErrorOut(allow_null=True)


class InvoiceOut(InvoiceSummaryOut):
    seller = SellerOut()
    buyer = BuyerOut()
    place_of_supply = serializers.CharField()
    supply_type = serializers.CharField()
    endorsement = serializers.CharField()
    replaces = serializers.CharField(source="replaces.public_id", allow_null=True, default=None)
    reverse_charge = serializers.BooleanField(default=False)
    numbers = InvoicedNumberOut(many=True)
    lines = InvoiceLineOut(many=True)
    subtotal_paise = serializers.IntegerField()
    taxes = TaxOut(many=True, source="taxes.rows")
    round_off_paise = serializers.IntegerField()
    total_in_words = serializers.CharField()
    amount_paid_paise = serializers.IntegerField()
    tds_paise = serializers.IntegerField()
    credited_paise = serializers.IntegerField()
    credit_notes = InvoiceCreditOut(many=True)
    attempts = AttemptOut(many=True, source="attempts_newest_first")
    irn = serializers.CharField(allow_null=True)


class PaymentOut(serializers.Serializer[PaymentAttempt]):
    id = serializers.CharField(source="invoice.public_id")
    status = serializers.CharField(source="invoice.status")
    attempt = PaymentAttemptOut(source="*")
    payment_url = serializers.CharField()
    expires_at = serializers.DateTimeField()


class LastSnapshotOut(serializers.Serializer[BillingSnapshot]):
    period = serializers.CharField()
    active_numbers = serializers.IntegerField()
    total_paise = serializers.IntegerField()


class BilledTenantOut(serializers.Serializer[Any]):
    tenant_id = serializers.UUIDField(source="id")
    name = serializers.CharField()
    billing_status = serializers.ChoiceField(choices=Tenant.BillingStatus.choices, allow_null=True)
    past_due_since = serializers.DateTimeField(allow_null=True)
    last_snapshot = LastSnapshotOut(allow_null=True)
    open_invoices = serializers.IntegerField()


class AdminBillingOut(serializers.Serializer[Any]):
    billing_enabled = serializers.BooleanField()
    tenants = BilledTenantOut(many=True)
