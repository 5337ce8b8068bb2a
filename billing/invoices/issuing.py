"""Issue tax invoices from snapshots. One transaction takes the number and stores the final contents.

Called by `billing_run.py`. A month without numbers has no invoice. Two simultaneous runs issue one invoice, because the
snapshot is locked and a first invoice is unique per snapshot. `billing/mails.py` mails invoices. Staff can replace
an invoice with a wrong buyer once the billing profile is correct.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from billing import buyers, ledger, plan, restriction
from billing.error_isolation import each
from billing.invoices import credit_notes
from billing.models import BillingProfile, BillingSnapshot, Invoice, InvoiceLine
from billing.payments import bank_transfers, corrections
from billing.payments.corrections import correcting
from billing.pricing.money import in_words
from billing.pricing.periods import Period, ist_midnight
from gateway.api.errors import Conflict

HELD_FOR = timedelta(days=20)
"""How long after its month an invoice waits for the buyer's State, or a registered buyer's address.

An invoice has to be issued within 30 days (CGST rule 47). After the wait, the seller's State is the place of supply, as
IGST Act section 12(2)(b) requires when no address is known.
"""


def issue_due(at: datetime) -> int:
    """Issue an invoice for every snapshot without an invoice. Returns the number of issued invoices."""
    waiting = (
        BillingSnapshot.objects.filter(invoices__isnull=True, total_paise__gt=0)
        .order_by("period", "id")
        .values_list("id", flat=True)
    )
    return each(list(waiting), lambda snapshot_id: _issue(snapshot_id, at), step="invoices")


def _issue(snapshot_id: UUID, at: datetime) -> bool:
    with ledger.account(BillingSnapshot.objects.get(pk=snapshot_id).tenant_id):
        snapshot = (
            BillingSnapshot.objects.select_for_update(of=("self",))
            .select_related("tenant")
            .get(pk=snapshot_id)
        )
        if Invoice.objects.filter(snapshot=snapshot).exists():
            return False
        profile = buyers.profile_of(snapshot.tenant)
        if buyers.holds_back(profile) and at < Period.parse(snapshot.period).end + HELD_FOR:
            return False
        create(snapshot=snapshot, profile=profile, at=at)
        if ledger.available_paise(snapshot.tenant_id) > 0:
            restriction.use_balance(snapshot.tenant_id, at)
    return True


def create(
    *, snapshot: BillingSnapshot, profile: BillingProfile, at: datetime, replaces: Invoice | None = None
) -> Invoice:
    """Write an invoice and its lines with the next number, by the terms in the snapshot.

    Call it within `ledger.account`, with the snapshot locked.
    """
    number, year, at = ledger.take_number(model=Invoice, prefix=settings.BILLING_INVOICE_PREFIX, at=at)
    supply = buyers.supply(profile, at)
    terms = plan.Terms.from_json(snapshot.terms)
    charge = plan.charge_for(snapshot.active_numbers, terms)
    taxes = charge.taxes(supply)
    total_paise = charge.subtotal_paise + taxes.total_paise
    invoice = Invoice.objects.create(
        tenant=snapshot.tenant,
        snapshot=snapshot,
        replaces=replaces,
        reopened_at=replaces.reopened_at if replaces else None,
        number=number,
        financial_year=year,
        period=snapshot.period,
        issued_at=at,
        due_at=ist_midnight(at) + timedelta(days=terms.due_days + 1, seconds=-1),
        seller=buyers.seller(),
        buyer=buyers.buyer(profile),
        place_of_supply=supply.place,
        supply_type=supply.kind,
        endorsement=supply.endorsement,
        active_numbers=snapshot.active_numbers,
        subtotal_paise=charge.subtotal_paise,
        cgst_paise=taxes.cgst_paise,
        sgst_paise=taxes.sgst_paise,
        igst_paise=taxes.igst_paise,
        total_paise=total_paise,
        total_in_words=in_words(total_paise),
    )
    InvoiceLine.objects.bulk_create(
        InvoiceLine(
            invoice=invoice,
            description=line.description,
            sac=settings.BILLING_SAC,
            quantity=line.quantity,
            unit_paise=line.unit_paise,
            amount_paise=line.amount_paise,
            gst_percent=terms.gst_percent,
            plan_version=terms.version,
        )
        for line in charge.lines
    )
    ledger.book_invoice(invoice)
    if profile.tds_percent:
        bank_transfers.deduct_declared(invoice, profile.tds_percent, at)
    return invoice


def replace(*, invoice_id: UUID, reason: str, at: datetime, actor_user_id: int | None = None) -> Invoice:
    """Credit the rest of an invoice, and issue another invoice for its month with the current profile. Payments become
    the tenant's balance, which pays the new invoice.

    Raises Conflict for an invoice that was replaced or credited in full, has a payment in flight, or is so old that its
    GST would be owed twice.
    """
    with correcting(invoice_id, at) as invoice:
        snapshot = BillingSnapshot.objects.select_for_update(of=("self",)).get(invoices=invoice_id)
        before = invoice.credited_paise
        left = invoice.total_paise - before
        if left == 0 or Invoice.objects.filter(replaces=invoice).exists():
            raise Conflict("This invoice was already replaced or credited.")
        note = credit_notes.write(
            invoice, total_paise=left, reason=reason, at=at, actor_user_id=actor_user_id
        )
        profile = buyers.profile_of(snapshot.tenant)
        new = create(snapshot=snapshot, profile=profile, at=at, replaces=invoice)
        if note.is_commercial and invoice.taxes.total_paise and new.taxes.total_paise:
            raise Conflict(
                "A credit note can no longer lower the GST of this invoice, so a new invoice would add the GST again."
            )
        if before:
            # The tenant keeps earlier credits of the old invoice.
            credit_notes.write(
                new,
                total_paise=min(before, new.total_paise),
                reason=f"Credited of {invoice.number}, which this invoice replaces",
                at=at,
                actor_user_id=actor_user_id,
            )
        Invoice.objects.filter(pk=invoice.pk).update(status=Invoice.Status.VOID, paid_at=None)
        corrections.record(invoice, "billing.replace", actor_user_id, replaced_by=new.number, reason=reason)
    new.refresh_from_db()
    return new
