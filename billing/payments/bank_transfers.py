"""Bank transfers, tax deducted at source and write-offs. Staff record them, with an audit entry."""

from contextlib import suppress
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, Sum

from billing import ledger, restriction
from billing.error_isolation import each
from billing.models import BankTransfer, BillingProfile, Invoice, InvoiceQuerySet, PaymentAttempt, StaffAct
from billing.payments import attempts, corrections, payment_links
from billing.payments.corrections import correcting
from billing.payments.provider import ProviderRefused, ProviderUnreachable
from billing.pricing.money import rounded_share, rupees
from gateway.api.errors import Conflict, InvalidRequest

TDS_PERCENT = 10
"""The highest rate at which a buyer deducts tax for such a service."""
MOST_PAISE = 10**12
"""The largest transfer in paise. A larger amount is rejected as a typo."""


def record(
    *, invoice_id: UUID, amount_paise: int, reference: str, at: datetime, actor_user_id: int | None = None
) -> PaymentAttempt:
    """Record a payment of an invoice. `reference` is the bank's reference (UTR), unique per tenant. An excess becomes
    the tenant's balance.

    Raises InvalidRequest for a reference that was recorded before, Conflict while another payment is in flight.
    """
    reference = " ".join(reference.split()).upper()
    with correcting(invoice_id, at) as invoice:
        if not 0 < amount_paise <= MOST_PAISE:
            raise InvalidRequest.of(amount=f"Must be from ₹0.01 to {rupees(MOST_PAISE)}.")
        attempt = _insert(invoice, amount_paise, reference, at)
        _book(attempt, invoice, at)
        details = {"amount_paise": amount_paise, "reference": reference}
        corrections.record(invoice, "billing.payment", actor_user_id, **details)
    return attempt


def give_back(
    *, attempt_id: UUID, amount_paise: int, reference: str, at: datetime, actor_user_id: int | None = None
) -> PaymentAttempt:
    """Record that a transfer, or a part of it, was paid back by bank transfer from the tenant's balance.

    Raises InvalidRequest for more than the balance or the transfer, Conflict for an attempt that is not a transfer.
    """
    reference = " ".join(reference.split()).upper()
    with ledger.locked_attempt(attempt_id) as (invoice, attempt):
        if attempt.kind != PaymentAttempt.Kind.MANUAL:
            raise Conflict("Only a bank transfer can be paid back by one.")
        most = min(ledger.available_paise(invoice.tenant_id), attempt.kept_paise)
        if not 0 < amount_paise <= most:
            raise InvalidRequest.of(amount=f"At most {rupees(max(0, most))} can be paid back.")
        attempt.refunded_paise += amount_paise
        attempt.save(update_fields=["refunded_paise"])
        _book(attempt, invoice, at)
        restriction.use_balance(invoice.tenant_id, at)
        details = {"amount_paise": amount_paise, "reference": reference}
        corrections.record(invoice, "billing.refund", actor_user_id, **details)
    return attempt


def record_tds(
    *, invoice_id: UUID, amount_paise: int, certificate: str, at: datetime, actor_user_id: int | None = None
) -> None:
    """Record the total tax that a buyer deducted at source (TDS) from an invoice, at most 10 % of the taxable value. If
    the buyer declared more, the difference is due again. An amount with a certificate number is final.

    The tax counts as paid. If the invoice was already paid in full, the tax becomes the tenant's balance, which can be
    refunded. Raises InvalidRequest and Conflict.
    """
    certificate = certificate.strip().upper()
    with correcting(invoice_id, at) as invoice:
        most = _share(invoice, TDS_PERCENT)
        if not bool(certificate) <= amount_paise <= most:
            raise InvalidRequest.of(amount=f"At most {rupees(most)}: {TDS_PERCENT} % of the taxable value.")
        if _is_certified(invoice):
            raise Conflict("The certificate of this invoice was already recorded.")
        deduct(invoice, amount_paise, at, certificate)
        details = {"amount_paise": amount_paise, "certificate": certificate}
        corrections.record(invoice, "billing.tds", actor_user_id, **details)


def deduct(invoice: Invoice, amount_paise: int, at: datetime, certificate: str = "") -> None:
    """Post the total tax deducted from a locked invoice, within `ledger.account`."""
    attempt = PaymentAttempt.objects.filter(invoice=invoice, kind=PaymentAttempt.Kind.TDS).first()
    if attempt is not None:
        more = amount_paise - attempt.kept_paise
        attempt.captured_paise += max(0, more)
        attempt.refunded_paise += max(0, -more)
        attempt.provider_payment_id = certificate
        attempt.save(update_fields=["captured_paise", "refunded_paise", "provider_payment_id"])
    elif amount_paise:
        attempt = _captured(invoice, PaymentAttempt.Kind.TDS, amount_paise, certificate, at)
    if attempt is not None:
        _book(attempt, invoice, at)


def deduct_declared(invoice: Invoice, percent: int, at: datetime) -> None:
    """Adjust the deducted tax of a locked invoice to the rate that its buyer declared, within `ledger.account`. The
    deduction never exceeds the amount due. If the invoice or the invoice that it replaced has a certificate, nothing
    changes. Exports have no deduction.
    """
    deduct(invoice, _declared_paise(invoice, percent), at)


def _declared_paise(invoice: Invoice, percent: int) -> int:
    """The tax that an invoice has deducted at a declared rate."""
    certified = _is_certified(invoice) or (invoice.replaces and _is_certified(invoice.replaces))
    deducted = invoice.tds_paise
    if certified or invoice.supply_type == "export":
        return deducted
    return min(_share(invoice, percent), deducted + max(0, ledger.open_paise(invoice)))


def follow_declaration(tenant_id: UUID, at: datetime) -> None:
    """Adjust the unpaid invoices of a tenant to its declared TDS rate. Skips an invoice whose deduction staff recorded,
    an invoice with a payment in flight, and one with a link that cannot be ended. The billing run continues with these.
    """
    for invoice_id in _behind(Invoice.objects.for_tenant(tenant_id)):
        with suppress(ProviderUnreachable):
            _follow(invoice_id, at)


def follow_declarations(at: datetime) -> int:
    """Adjust the unpaid invoices of all tenants to the declared TDS rates, where that was not possible before. Returns
    how many were adjusted.
    """
    return each(_behind(Invoice.objects.all()), lambda invoice_id: _follow(invoice_id, at), step="deductions")


def _behind(invoices: InvoiceQuerySet) -> list[UUID]:
    """The unpaid invoices whose deduction differs from the rate that their buyer declared. Without invoices whose
    deduction staff record, or that have a payment in flight.
    """
    recorded = StaffAct.objects.filter(
        tenant_id=OuterRef("tenant_id"),
        target_id=OuterRef("pk"),
        act="tds",
        status__in=(StaffAct.Status.BEGUN, StaffAct.Status.DONE),
    )
    deducted = PaymentAttempt.objects.filter(invoice=OuterRef("pk"), kind=PaymentAttempt.Kind.TDS)
    may_differ = Q(tenant__billing_profile__tds_percent__gt=0) | Exists(deducted)
    rows = invoices.unpaid().filter(may_differ, ~Exists(recorded), tenant__billing_profile__isnull=False)
    begun = PaymentAttempt.Status.PROCESSING
    return [
        invoice.pk
        for invoice in rows.select_related("tenant__billing_profile", "replaces").order_by("id")
        if _declared_paise(invoice, invoice.tenant.billing_profile.tds_percent) != invoice.tds_paise
        and not payment_links.in_flight(invoice).filter(status=begun).exists()
    ]


def _follow(invoice_id: UUID, at: datetime) -> bool:
    """Adjust an invoice to the declared rate. Returns whether that was possible. Raises ProviderUnreachable."""
    percent = BillingProfile.objects.filter(tenant__invoices=invoice_id).values_list("tds_percent", flat=True)
    try:
        with correcting(invoice_id, at) as invoice:
            deduct_declared(invoice, percent.get(), at)
    except (Conflict, ProviderRefused):
        return False
    return True


def lower_tds(invoice: Invoice, taxable_paise: int, at: datetime) -> None:
    """Lower the deducted tax of a locked invoice in proportion to a credit of `taxable_paise`. Call it after the credit
    note is written. A certified amount stays.
    """
    left = _taxable(invoice)
    if not _is_certified(invoice):
        deduct(invoice, rounded_share(invoice.tds_paise, max(0, left), max(1, left + taxable_paise)), at)


def _taxable(invoice: Invoice) -> int:
    credited = invoice.credit_notes.aggregate(total=Sum("taxable_paise", default=0))["total"]
    return int(invoice.subtotal_paise - credited)


def _share(invoice: Invoice, percent: int) -> int:
    return rounded_share(max(0, _taxable(invoice)), percent, 100)


def _is_certified(invoice: Invoice) -> bool:
    """Whether a certificate of deducted tax was recorded."""
    own = PaymentAttempt.objects.filter(invoice=invoice, kind=PaymentAttempt.Kind.TDS)
    return own.exclude(provider_payment_id="").exists()


def write_off(*, invoice_id: UUID, reason: str, at: datetime, actor_user_id: int | None = None) -> int:
    """Write off the amount due of an invoice. Returns the amount. Its GST is still owed to the state, because only a
    credit note lowers GST.

    Raises Conflict when nothing is due or a payment is in flight.
    """
    with correcting(invoice_id, at) as invoice:
        left = ledger.open_paise(invoice)
        if left <= 0:
            raise Conflict("Nothing is due on this invoice.")
        ledger.write_off(invoice, left, at, reason)
        ledger.settle(invoice, at)
        corrections.record(invoice, "billing.write_off", actor_user_id, amount_paise=left, reason=reason)
    return left


def _book(attempt: PaymentAttempt, invoice: Invoice, at: datetime) -> None:
    ledger.book_attempt(attempt, invoice, at)
    ledger.settle(invoice, at)


def _captured(invoice: Invoice, kind: str, amount_paise: int, reference: str, at: datetime) -> PaymentAttempt:
    known = {"status": PaymentAttempt.Status.CAPTURED, "captured_paise": amount_paise, "completed_at": at}
    return attempts.insert(
        invoice, kind, at, amount_paise=amount_paise, provider_payment_id=reference, **known
    )


def _insert(invoice: Invoice, amount_paise: int, reference: str, at: datetime) -> PaymentAttempt:
    """Create the attempt with its reference. Raises InvalidRequest for a reference that the tenant already has."""
    try:
        with transaction.atomic():
            attempt = _captured(invoice, PaymentAttempt.Kind.MANUAL, amount_paise, reference, at)
            BankTransfer.objects.create(attempt=attempt, tenant_id=invoice.tenant_id, reference=reference)
    except IntegrityError:
        raise InvalidRequest.of(
            reference="This reference was recorded before. If one transfer paid two invoices, add /2 to it."
        ) from None
    return attempt
