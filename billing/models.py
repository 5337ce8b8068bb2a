"""Billing tables: profile, monthly snapshot, invoice with lines, credit note, payments, ledger.

This module has only rows and their invariants. Money is paise. Snapshots, invoices, their lines and credit notes are
history: database triggers forbid changes (migrations 0002, 0005), except to an invoice's payment columns and to its
e-invoice registration.
"""

import secrets
from datetime import datetime
from typing import Any, ClassVar, Self

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Greatest
from django.utils.functional import cached_property

from billing.pricing import gst
from billing.pricing.money import SMALLEST_PAISE, rupees
from billing.pricing.periods import Period, ist_midnight
from gateway import ids
from gateway.clock import IST, now
from gateway.ids import uuid7
from tenants.models import Tenant, TenantRows

INVOICE, CREDIT_NOTE = "inv_", "crn_"
MANDATE, ATTEMPT, REFUND = "mnd_", "pat_", "rfd_"
RAZORPAY = "razorpay"
"""The provider of rows that are older than the column `provider`."""
INDIA = "IN"


class BillingProfile(models.Model):
    """The buyer on a tenant's invoices. Written by `buyers.py`, first from the sign-up."""

    tenant = models.OneToOneField(
        Tenant, primary_key=True, on_delete=models.PROTECT, related_name="billing_profile"
    )
    legal_name = models.CharField(max_length=200, blank=True)
    address = models.CharField(max_length=500, blank=True)
    city = models.CharField(max_length=100, blank=True)
    pin = models.CharField(max_length=6, blank=True)
    state_code = models.CharField(max_length=2, blank=True)
    tax_id = models.CharField(max_length=20, blank=True)
    tax_id_type = models.CharField(max_length=10, blank=True)
    is_sez = models.BooleanField("special economic zone", default=False)
    phone = models.CharField(max_length=16, blank=True)
    country = models.CharField(max_length=2, default=INDIA, db_default=INDIA)
    """ISO 3166. An invoice for a buyer outside of India is an export."""
    tds_percent = models.PositiveSmallIntegerField("TDS rate", default=0, db_default=0)
    """The rate at which the buyer declared to deduct tax at source: one of `buyers.TDS_RATES`."""

    def __str__(self) -> str:
        return self.legal_name or str(self.pk)


class BillingSnapshot(models.Model):
    """The count of a tenant's active numbers in a month, and their price. Taken once, never changed."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="billing_snapshots")
    period = models.CharField(max_length=7)
    active_numbers = models.PositiveIntegerField()
    numbers = models.JSONField(encoder=DjangoJSONEncoder)
    """[{phone_number_id, display_phone_number, active_since, connected_seconds}]."""
    terms = models.JSONField()
    """The terms of the month. They price the invoice, even if it is issued later."""
    subtotal_paise = models.BigIntegerField()
    tax_paise = models.BigIntegerField()
    total_paise = models.BigIntegerField()
    taken_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "period"], name="snapshot_once_per_period"),
        ]

    def __str__(self) -> str:
        return f"Usage of {Period.parse(self.period).name}"


class PlanVersion(models.Model):
    """Terms that apply from a month of service, for all tenants or for one. Written by `plan.py`, never changed."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="plan_versions"
    )
    starts = models.CharField("first month", max_length=7)
    """A month such as `2026-12`. Of two versions with the same start, the newer is used."""
    ends = models.CharField("last month", max_length=7, blank=True)
    first_number_paise = models.BigIntegerField()
    additional_number_paise = models.BigIntegerField()
    included_numbers = models.PositiveIntegerField(default=1)
    gst_percent = models.PositiveSmallIntegerField("GST rate", null=True, blank=True)
    due_days = models.PositiveSmallIntegerField(default=7)
    reason = models.CharField(max_length=500)
    created_at = models.DateTimeField()
    created_by = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(
                    first_number_paise__gte=0,
                    additional_number_paise__gte=0,
                    included_numbers__gte=1,
                    due_days__gte=1,
                ),
                name="terms_make_sense",
            ),
            models.CheckConstraint(
                condition=Q(tenant=None, gst_percent__lte=100) | Q(tenant__isnull=False, gst_percent=None),
                name="gst_rate_is_everybodys",
            ),
        ]

    def __str__(self) -> str:
        return f"Terms from {Period.parse(self.starts).name}"


class InvoiceSeries(models.Model):
    """The next number of a series in a financial year. The row is locked while a document is issued, so there are no
    gaps.
    """

    prefix = models.CharField(max_length=8)
    financial_year = models.CharField(max_length=4)
    next_serial = models.PositiveIntegerField(default=1)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["prefix", "financial_year"], name="series_once_per_year"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}/{self.financial_year}"


class _IstMidnight(Func):
    """`ist_midnight` as an expression."""

    template = f"date_trunc('day', %(expressions)s, '{IST.key}')"
    output_field = models.DateTimeField()


def end_of_term(invoice: str = "") -> Greatest:
    """`Invoice.pay_by` as an expression. `invoice` is the prefix of the invoice's columns, such as `invoice__`."""
    due_at = F(f"{invoice}due_at")
    # GREATEST ignores the null of an invoice that was never reopened.
    again = _IstMidnight(f"{invoice}reopened_at") + (due_at - _IstMidnight(f"{invoice}issued_at"))
    return Greatest(due_at, again, output_field=models.DateTimeField())


class InvoiceQuerySet(TenantRows["Invoice"]):
    def unpaid(self) -> Self:
        """Invoices with an amount due: open, processing or failed."""
        return self.filter(status__in=Invoice.UNPAID)

    def owing(self) -> Self:
        """Unpaid invoices with at least a rupee due. A smaller debt cannot be collected, and its tenant is not late."""
        return self.unpaid().filter(
            total_paise__gte=F("amount_paid_paise") + F("credited_paise") + SMALLEST_PAISE
        )


class Invoice(ids.PublicId, models.Model):
    """An issued tax invoice. Only its payment columns and its e-invoice registration change."""

    class Status(models.TextChoices):
        OPEN = "open"
        PROCESSING = "processing"
        FAILED = "failed"
        PAID = "paid"
        VOID = "void"

    UNPAID = (Status.OPEN, Status.PROCESSING, Status.FAILED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = INVOICE
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices")
    snapshot = models.ForeignKey(BillingSnapshot, on_delete=models.PROTECT, related_name="invoices")
    replaces = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by"
    )
    """The invoice of the same month that this invoice replaces. It was credited in full because its buyer was wrong."""
    number = models.CharField(max_length=16, unique=True)
    financial_year = models.CharField(max_length=4)
    period = models.CharField(max_length=7)
    issued_at = models.DateTimeField()
    due_at = models.DateTimeField()
    """The last second of the Indian day on which the invoice is due."""
    seller = models.JSONField()
    buyer = models.JSONField()
    place_of_supply = models.CharField(max_length=60)
    supply_type = models.CharField(max_length=12)
    endorsement = models.CharField(max_length=300, blank=True, default="", db_default="")
    """The endorsement that CGST rule 46 requires on supplies to special economic zones and on exports."""
    active_numbers = models.PositiveIntegerField()
    subtotal_paise = models.BigIntegerField()
    cgst_paise = models.BigIntegerField()
    sgst_paise = models.BigIntegerField()
    igst_paise = models.BigIntegerField()
    round_off_paise = models.BigIntegerField(default=0)
    total_paise = models.BigIntegerField()
    total_in_words = models.CharField(max_length=300)

    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    amount_paid_paise = models.BigIntegerField(default=0)
    credited_paise = models.BigIntegerField(default=0)
    paid_at = models.DateTimeField(null=True, blank=True)
    overdue_since = models.DateTimeField(null=True, blank=True)
    """When the invoice became overdue: when a debit first failed, else the due date."""
    reminders_sent = models.PositiveSmallIntegerField(default=0)
    reopened_at = models.DateTimeField(null=True, blank=True)
    """When a refund made a paid invoice due again. Its reminders start again, and it is never debited automatically.
    Neither is an invoice that replaces it.
    """
    retries_started = models.PositiveSmallIntegerField(default=0)
    irn = models.CharField(max_length=64, null=True, blank=True)
    ack_no = models.CharField("acknowledgement number", max_length=30, null=True, blank=True)
    ack_at = models.DateTimeField("acknowledged at", null=True, blank=True)
    signed_qr = models.TextField(null=True, blank=True)
    irn_cancelled_at = models.DateTimeField("registration cancelled at", null=True, blank=True)
    """When the registration was cancelled, which the portal allows for a day. Then only table 13 of GSTR-1 has the
    invoice.
    """

    objects = InvoiceQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(
                    total_paise=F("subtotal_paise")
                    + F("cgst_paise")
                    + F("sgst_paise")
                    + F("igst_paise")
                    + F("round_off_paise")
                ),
                name="invoice_adds_up",
            ),
            models.UniqueConstraint(
                fields=["snapshot"],
                condition=Q(replaces__isnull=True),
                name="first_invoice_once_per_snapshot",
            ),
            models.CheckConstraint(
                condition=Q(credited_paise__gte=0, credited_paise__lte=F("total_paise")),
                name="credit_within_invoice",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "-id"], name="invoice_by_tenant"),
            models.Index(
                fields=["tenant"],
                name="invoice_unpaid",
                condition=Q(status__in=["open", "processing", "failed"]),
            ),
        ]

    def __str__(self) -> str:
        return self.number

    @property
    def amount_due_paise(self) -> int:
        """The amount still due according to the ledger. `ledger.settle` keeps `amount_paid_paise` consistent with
        it.
        """
        return max(0, self.total_paise - self.amount_paid_paise - self.credited_paise)

    @property
    def tds_paise(self) -> int:
        """The tax that the buyer deducts at source, with or without a certificate."""
        own = self.attempts.filter(kind=PaymentAttempt.Kind.TDS)
        return sum(attempt.kept_paise for attempt in own)

    @property
    def pay_by(self) -> datetime:
        """The end of the term to pay: the due date, or later if a refund reopened the invoice with a new full term."""
        if self.reopened_at is None:
            return self.due_at
        return max(self.due_at, ist_midnight(self.reopened_at) + (self.due_at - ist_midnight(self.issued_at)))

    @cached_property
    def gst_percent(self) -> int:
        """The GST rate of the invoice's lines."""
        return max((line.gst_percent for line in self.lines.all()), default=0)

    @property
    def taxes(self) -> gst.Taxes:
        return gst.Taxes(
            self.cgst_paise,
            self.sgst_paise,
            self.igst_paise,
            place_code=self.place_of_supply.partition("-")[0],
            percent=self.gst_percent,
        )

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """The billed numbers, with the intervals in which they were connected."""
        return [
            {
                **number,
                "intervals": [
                    {end: datetime.fromisoformat(moment) for end, moment in span.items()}
                    for span in number.get("intervals", ())
                ],
            }
            for number in self.snapshot.numbers
        ]

    @property
    def attempts_newest_first(self) -> "models.QuerySet[PaymentAttempt]":
        return self.attempts.order_by("-id")


class PayLink(models.Model):
    """The secret in the address of an invoice's pay page. It is random, so a rotation of keys does not break mailed
    links.
    """

    invoice = models.OneToOneField(
        Invoice, primary_key=True, on_delete=models.PROTECT, related_name="pay_link"
    )
    token = models.CharField(max_length=64, unique=True)

    def __str__(self) -> str:
        return str(self.pk)

    @classmethod
    def url_of(cls, invoice: Invoice) -> str:
        """The secret address of an invoice's pay page. It never changes."""
        link, _ = cls.objects.get_or_create(invoice=invoice, defaults={"token": secrets.token_urlsafe(32)})
        return f"{settings.APP_URL}/pay/{link.token}"


class InvoiceLine(models.Model):
    """A line of an invoice. The sum of lines cannot exceed the invoice's subtotal, so no line can be added later."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="lines")
    description = models.CharField(max_length=200)
    sac = models.CharField(max_length=6)
    quantity = models.PositiveIntegerField()
    unit_paise = models.BigIntegerField()
    amount_paise = models.BigIntegerField()
    gst_percent = models.PositiveSmallIntegerField(default=18, db_default=18)
    """The rate of the supply, even when no tax is charged (special zones, exports)."""
    plan_version = models.UUIDField(null=True, blank=True)
    """The id of the terms that price the line. None for the first terms."""

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(amount_paise=F("quantity") * F("unit_paise"), amount_paise__gt=0),
                name="line_adds_up",
            ),
        ]

    def __str__(self) -> str:
        return self.description


class CreditNote(ids.PublicId, models.Model):
    """A correction of an issued invoice by staff. Credit notes have their own number series. Seller and buyer are those
    of the invoice.
    """

    WITHOUT_TAX = "Without tax, because the time of section 34(2) of the CGST Act is over"
    """Appended to the reason of a credit note that is too late to lower GST."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = CREDIT_NOTE
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="credit_notes")
    number = models.CharField(max_length=16, unique=True)
    issued_at = models.DateTimeField()
    reason = models.CharField(max_length=500)
    taxable_paise = models.BigIntegerField()
    tax_paise = models.BigIntegerField()
    total_paise = models.BigIntegerField()
    issued_by = models.BigIntegerField(null=True)
    irn = models.CharField(max_length=64, null=True, blank=True)
    ack_no = models.CharField("acknowledgement number", max_length=30, null=True, blank=True)
    ack_at = models.DateTimeField("acknowledged at", null=True, blank=True)
    signed_qr = models.TextField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(total_paise=F("taxable_paise") + F("tax_paise"), total_paise__gt=0),
                name="credit_note_adds_up",
            ),
        ]

    def __str__(self) -> str:
        return self.number

    @property
    def is_commercial(self) -> bool:
        """Whether the credit note lowers no GST. Such a note is in no return and is not registered."""
        return self.reason.endswith(self.WITHOUT_TAX)

    @property
    def taxes(self) -> gst.Taxes:
        """The credited tax, split like the invoice's."""
        return self.invoice.taxes.like(self.tax_paise)


class CreditNoteLine(models.Model):
    """A line of a credit note: a taxable amount, without GST."""

    credit_note = models.ForeignKey(CreditNote, on_delete=models.PROTECT, related_name="lines")
    description = models.CharField(max_length=200)
    sac = models.CharField(max_length=6)
    amount_paise = models.BigIntegerField()

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return self.description


class IssuedPdf(models.Model):
    """The PDF of a document as issued. A document that got its IRN later has two PDFs: without and with the IRN."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    number = models.CharField(max_length=16)
    irn = models.CharField(max_length=64, blank=True)
    content = models.BinaryField()
    made_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["number", "irn"], name="pdf_once_per_form"),
        ]

    def __str__(self) -> str:
        return self.number


class BillingMail(models.Model):
    """A mail that is sent once. The row is written in the transaction that queues the mail. A kind with `_waits` at the
    end is a document that waits for an address.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="billing_mails")
    kind = models.CharField(max_length=30)
    key = models.CharField(max_length=100)
    """The subject of the mail: an invoice's number, a month, or a mandate with the days left."""
    sent_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "kind", "key"], name="billing_mail_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Mandate(ids.PublicId, models.Model):
    """A permission to debit a tenant repeatedly. Written by `payments/mandates.py`."""

    class Method(models.TextChoices):
        UPI = "upi", "UPI"
        CARD = "card"
        EMANDATE = "emandate", "E-mandate"

    class Status(models.TextChoices):
        PENDING = "pending"
        ACTIVE = "active"
        PAUSED = "paused"
        REJECTED = "rejected"
        CANCELLED = "cancelled"
        EXPIRED = "expired"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = MANDATE
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="mandates")
    provider = models.CharField(max_length=20, default=RAZORPAY, db_default=RAZORPAY)
    """The provider that registered the mandate. This provider debits and cancels it, regardless of PAYMENT_PROVIDER."""
    method = models.CharField(max_length=10, choices=Method.choices)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    max_amount_paise = models.BigIntegerField()
    instrument = models.CharField(max_length=100, null=True, blank=True)
    """The masked account or card, such as `g***@okaxis`."""
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    return_url = models.CharField(max_length=2048, null=True, blank=True)
    authorization_url = models.CharField(max_length=500, null=True, blank=True)
    authorization_expires_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    provider_registration_id = models.CharField(max_length=64, null=True, blank=True)
    """The provider's id of the page on which the mandate is approved."""
    provider_order_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    provider_customer_id = models.CharField(max_length=64, null=True, blank=True)
    provider_token_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    cancel_at_provider = models.BooleanField(default=False)
    """Whether the page or token of a replaced mandate must still be cancelled at the provider."""
    created_at = models.DateTimeField(default=now, editable=False)

    objects = TenantRows["Mandate"].as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"],
                condition=Q(status__in=["active", "paused"]),
                name="one_standing_mandate_per_tenant",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "-id"], name="mandate_by_tenant")]

    def __str__(self) -> str:
        return self.public_id


class PaymentAttempt(ids.PublicId, models.Model):
    """One attempt to collect an invoice. Written by `billing/payments/`. An invoice has at most one
    attempt in flight.
    """

    class Kind(models.TextChoices):
        AUTOPAY = "autopay"
        LINK = "link"
        MANUAL = "manual", "Bank transfer"
        TDS = "tds", "Tax deducted at source"

    class Status(models.TextChoices):
        CREATED = "created"
        SCHEDULED = "scheduled"
        PROCESSING = "processing"
        CAPTURED = "captured"
        FAILED = "failed"
        UNKNOWN = "unknown"

    IN_FLIGHT = (Status.CREATED, Status.SCHEDULED, Status.PROCESSING, Status.UNKNOWN)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = ATTEMPT
    invoice = models.ForeignKey("billing.Invoice", on_delete=models.PROTECT, related_name="attempts")
    mandate = models.ForeignKey(
        Mandate, null=True, blank=True, on_delete=models.PROTECT, related_name="attempts"
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.CREATED)
    amount_paise = models.BigIntegerField()
    provider = models.CharField(max_length=20, default=RAZORPAY, db_default=RAZORPAY)
    captured_paise = models.BigIntegerField(default=0)
    """The amount collected. Both this and `refunded_paise` only grow, so a stale answer of the provider changes
    nothing.
    """
    refunded_paise = models.BigIntegerField(default=0, db_default=0)
    """The amount refunded."""
    receipt = models.CharField(max_length=40, unique=True)
    return_url = models.CharField(max_length=2048, null=True, blank=True)
    payment_url = models.CharField(max_length=500, null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    """When a payment link expires."""
    pays_all = models.BooleanField(default=False, db_default=False)
    """Whether the link is for all payable invoices. `invoice` is then the oldest of them."""
    provider_order_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    provider_link_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    provider_payment_id = models.CharField(max_length=64, null=True, blank=True)
    scheduled_for = models.DateTimeField(null=True, blank=True)
    """When the debit was requested. Written before the call, so that the debit is requested only once."""
    completed_at = models.DateTimeField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()
    next_check_at = models.DateTimeField()
    """When to check with the provider, if no notice arrives earlier."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["invoice"],
                condition=Q(status__in=["created", "scheduled", "processing", "unknown"]),
                name="one_attempt_in_flight_per_invoice",
            ),
            models.UniqueConstraint(
                fields=["invoice"], condition=Q(kind="tds"), name="tax_deducted_once_per_invoice"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_check_at"],
                name="attempt_in_flight",
                condition=Q(status__in=["created", "scheduled", "processing", "unknown"]),
            ),
            models.Index(
                fields=["next_check_at"], name="attempt_ended", condition=Q(status__in=["captured", "failed"])
            ),
            models.Index(fields=["provider_payment_id"], name="attempt_by_payment"),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def kept_paise(self) -> int:
        """The amount collected and not refunded."""
        return self.captured_paise - self.refunded_paise


class BankTransfer(models.Model):
    """The bank's reference of a recorded transfer. Unique per tenant. Written by `payments/bank_transfers.py`."""

    attempt = models.OneToOneField(
        PaymentAttempt, primary_key=True, on_delete=models.PROTECT, related_name="bank_transfer"
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="bank_transfers")
    reference = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "reference"], name="bank_reference_once_per_tenant"),
        ]

    def __str__(self) -> str:
        return self.reference


class Refund(ids.PublicId, models.Model):
    """A refund by staff of a captured attempt. An attempt has at most one refund in flight. Written by
    `payments/refunds.py`.
    """

    class Status(models.TextChoices):
        CREATED = "created"
        UNKNOWN = "unknown"
        PROCESSING = "processing"
        PROCESSED = "processed"
        FAILED = "failed"

    IN_FLIGHT = (Status.CREATED, Status.UNKNOWN, Status.PROCESSING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = REFUND
    attempt = models.ForeignKey(PaymentAttempt, on_delete=models.PROTECT, related_name="refunds")
    amount_paise = models.BigIntegerField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.CREATED)
    receipt = models.CharField(max_length=40, unique=True)
    provider_refund_id = models.CharField(max_length=64, null=True, blank=True, unique=True)
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField()
    requested_by = models.BigIntegerField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["attempt"],
                condition=Q(status__in=["created", "unknown", "processing"]),
                name="one_refund_in_flight_per_attempt",
            ),
            models.CheckConstraint(condition=Q(amount_paise__gt=0), name="refund_is_positive"),
        ]

    def __str__(self) -> str:
        return self.public_id


class ProviderTrouble(models.Model):
    """A payment provider that refuses the service's account or keys. The next success of the refused call deletes the
    row.
    """

    provider = models.CharField(max_length=20, primary_key=True)
    call = models.CharField(max_length=60, blank=True, default="", db_default="")
    """The refused call. Empty if the provider refuses the keys, which all calls use."""
    since = models.DateTimeField()
    status = models.PositiveSmallIntegerField()
    text = models.CharField(max_length=300)

    def __str__(self) -> str:
        return f"{self.provider} since {self.since:%Y-%m-%d %H:%M} UTC"


class ProviderEvent(models.Model):
    """A notice of the payment provider, as received. Written by `payments/provider_notices.py`."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    event_id = models.CharField(max_length=100)
    type = models.CharField(max_length=60)
    body = models.BinaryField()
    received_at = models.DateTimeField(default=now, editable=False)
    processed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "event_id"], name="provider_event_once"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["id"], name="provider_event_waiting", condition=Q(processed_at__isnull=True))
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"


class LedgerEntry(models.Model):
    """One act, posted in its transaction. Written by `ledger.py`, never changed. `key` makes it unique."""

    class Act(models.TextChoices):
        INVOICE = "invoice", "Invoice issued"
        CREDIT = "credit", "Credit note issued"
        PAYMENT = "payment", "Payment collected"
        REFUND = "refund", "Payment paid back"
        TRANSFER = "transfer", "Bank transfer received"
        RETURN = "return", "Bank transfer paid back"
        TDS = "tds", "Tax deducted at source"
        CERTIFICATE = "certificate", "TDS certificate received"
        SET_OFF = "set_off", "Balance set off"
        WRITE_OFF = "write_off", "Written off"
        CHECK = "check", "Mandate approved"
        SETTLEMENT = "settlement", "Provider settled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="ledger_entries"
    )
    act = models.CharField(max_length=12, choices=Act.choices)
    key = models.CharField(max_length=100, unique=True)
    """The name of the act, such as `invoice WG/2627/000001`. A second posting with the same key does nothing."""
    text = models.CharField(max_length=500, blank=True)
    at = models.DateTimeField()
    """When the act happened."""

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant", "at"], name="ledger_by_tenant"),
            models.Index(fields=["at"], name="ledger_by_day"),
        ]

    def __str__(self) -> str:
        return self.key


class LedgerPosting(models.Model):
    """A debit (positive) or credit (negative) of one account, in paise. A trigger checks that the sum of an entry is
    zero.
    """

    class Account(models.TextChoices):
        RECEIVABLE = "receivable", "Receivable"
        BALANCE = "balance", "Customer balance"
        TDS = "tds", "TDS receivable"
        TDS_CREDIT = "tds_credit", "TDS with certificate"
        BANK = "bank"
        CLEARING = "clearing", "Provider clearing"
        FEES = "fees", "Provider fees"
        FEE_GST = "fee_gst", "GST on provider fees"
        CHECKS = "checks", "Mandate checks"
        SALES = "sales"
        GST = "gst", "GST payable"
        WRITE_OFF = "write_off", "Write-off"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    entry = models.ForeignKey(LedgerEntry, on_delete=models.PROTECT, related_name="postings")
    account = models.CharField(max_length=10, choices=Account.choices)
    amount_paise = models.BigIntegerField()
    invoice = models.ForeignKey(
        "billing.Invoice", null=True, blank=True, on_delete=models.PROTECT, related_name="postings"
    )
    """The invoice, for postings to receivables and write-offs."""

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount_paise=0), name="posting_is_something"),
            models.CheckConstraint(
                condition=~Q(account="receivable") | Q(invoice__isnull=False), name="receivable_has_invoice"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["account"], name="posting_by_account")]

    def __str__(self) -> str:
        return f"{self.account} {self.amount_paise}"


class SettledItem(models.Model):
    """A payment or refund in one of the provider's settlements. Written by `payments/settlements.py`."""

    entity_id = models.CharField(max_length=64, primary_key=True)
    settlement_id = models.CharField(max_length=64)
    utr = models.CharField("bank reference", max_length=64, blank=True)
    type = models.CharField(max_length=12)
    amount_paise = models.BigIntegerField()
    fee_paise = models.BigIntegerField()
    """The provider's fee, including the tax on it."""
    tax_paise = models.BigIntegerField()
    net_paise = models.BigIntegerField()
    """The amount paid to the bank account. Negative for a refund."""
    settled_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["settlement_id"], name="settled_by_settlement"),
            models.Index(fields=["settled_at"], name="settled_by_day"),
        ]

    def __str__(self) -> str:
        return self.entity_id


class ClosedMonth(models.Model):
    """A month that accepts no more postings or documents. Written by `ledger.py`, never changed.

    A trigger moves the date of an entry in a closed month to the first moment after the month.
    """

    period = models.CharField(max_length=7, primary_key=True)
    ends_at = models.DateTimeField()
    closed_at = models.DateTimeField()
    closed_by = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return self.period


class StaffAct(models.Model):
    """An act of staff with a tenant's money. A large act waits for a second person.

    Written by `admin/second_person.py`.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", "Waits for a second person"
        BEGUN = "begun"
        DONE = "done"
        DECLINED = "declined"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="staff_acts")
    act = models.CharField(max_length=20)
    target_id = models.UUIDField()
    values = models.JSONField()
    amount_paise = models.BigIntegerField()
    status = models.CharField(max_length=10, choices=Status.choices)
    asked_by = models.BigIntegerField(null=True)
    asked_at = models.DateTimeField()
    decided_by = models.BigIntegerField(null=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(status="done", decided_by=models.F("asked_by")), name="second_person_is_another"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "asked_at"], name="staff_acts_of_a_day")]

    def __str__(self) -> str:
        return f"{self.act.replace('_', ' ')}, {rupees(self.amount_paise)}"
