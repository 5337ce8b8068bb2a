"""Tax deducted at source: a buyer that declares TDS pays only the rest, sends a certificate later, and is not late."""

from typing import Any

import pytest
from django.db.models import Sum
from pytest_django import Settings

from billing import buyers, ledger, mails, usage
from billing.billing_run import run
from billing.invoices import credit_notes, documents, issuing
from billing.models import BillingProfile, Invoice, LedgerPosting, Mandate, PaymentAttempt, StaffAct
from billing.payments import attempts, bank_transfers, payment_links
from billing.payments.provider import ProviderUnreachable
from billing.tests.conftest import FIRST_OF_DECEMBER, assert_balanced, connected, ist, only_invoice
from billing.tests.test_ledger import accounts, transfer
from billing.tests.test_payments import CHARGE, answer, deliver, set_up_mandate
from gateway.api.errors import Conflict, InvalidRequest
from tenants.models import AuditEntry, OutboundMail, Tenant
from tests.fixtures import Api
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


@pytest.fixture
def deductor(payer: Tenant) -> Tenant:
    """A payer with a declared TDS rate of 10 % and a number connected since November."""
    connected(payer, "1", (ist(2026, 11, 3), None))
    declare(payer, 10)
    return payer


@pytest.fixture
def invoice(deductor: Tenant) -> Invoice:
    """An invoice of ₹590.00, with ₹50.00 deducted."""
    run(FIRST_OF_DECEMBER)
    return only_invoice(deductor)


def declare(tenant: Tenant, percent: int) -> None:
    buyers.change(tenant_id=tenant.id, changes={"tds_percent": percent})
    bank_transfers.follow_declaration(tenant.id, CHARGE)


def record(invoice: Invoice, paise: int, certificate: str = "") -> None:
    bank_transfers.record_tds(invoice_id=invoice.id, amount_paise=paise, certificate=certificate, at=CHARGE)


def due(tenant: Tenant) -> tuple[str, int, int]:
    """Status, amount due and deducted amount of the newest invoice."""
    newest = Invoice.objects.filter(tenant=tenant).latest("id")
    assert_balanced()
    return newest.status, newest.amount_due_paise, newest.tds_paise


@pytest.mark.usefixtures("_typeset")
def test_the_rest_is_asked_for_and_pays_the_invoice(
    provider: RunningSimulator, deductor: Tenant, invoice: Invoice
) -> None:
    assert due(deductor) == ("open", 54_000, 5_000)
    assert accounts() == {"receivable": 54_000, "tds": 5_000, "sales": -50_000, "gst": -9_000}
    mail = OutboundMail.objects.get(subject__startswith="Invoice").text
    assert "pay ₹50.00 of it to the tax office and ₹540.00 to us" in mail
    link = payment_links.pay_now(invoice=invoice, at=CHARGE)
    assert (link.amount_paise, link.payment_url is not None) == (54_000, True)
    answer(link.payment_url or "", "approve")
    deliver(provider, CHARGE)
    assert due(deductor) == ("paid", 0, 5_000)
    run(ist(2026, 12, 1, 13))
    assert "We received ₹540.00" in OutboundMail.objects.get(subject__startswith="Receipt").text


def test_autopay_takes_the_rest_within_its_limit(
    provider: RunningSimulator, deductor: Tenant, invoice: Invoice
) -> None:
    set_up_mandate(provider, deductor, max_amount_paise=54_000)
    run(CHARGE)
    assert PaymentAttempt.objects.get(kind="autopay").amount_paise == 54_000
    assert due(deductor)[0] == "processing"


def test_the_issued_document_asks_for_the_rest(deductor: Tenant, settings: Settings) -> None:
    settings.BILLING_BANK_ACCOUNT = "Bank 1"
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(deductor)
    assert documents.of_invoice(invoice, as_issued=True)["payment"]["rows"][:2] == [
        ("To be paid", "₹540.00"),
        ("Less TDS of 10%", "₹50.00"),
    ]
    assert documents.of_invoice(invoice)["payment"]["rows"][:2] == [
        ("To be paid", "₹540.00"),
        ("Bank transfer", "Bank 1"),
    ]


@pytest.mark.parametrize(
    ("limit", "country", "is_above"),
    [(54_000, "IN", False), (53_999, "IN", True), (58_999, "DE", True), (59_000, "DE", False)],
)
def test_a_limit_is_too_low_for_what_is_debited(
    deductor: Tenant, limit: int, country: str, is_above: bool
) -> None:
    """A debit takes the rest. Nothing is deducted from an export."""
    BillingProfile.objects.update(country=country)
    Mandate.objects.create(tenant=deductor, method="upi", status="active", max_amount_paise=limit)
    mails.send_early_warnings(ist(2026, 11, 25))
    assert OutboundMail.objects.filter(subject__contains="above the limit").exists() is is_above


def test_what_was_deducted_is_never_overdue(deductor: Tenant, invoice: Invoice) -> None:
    transfer(invoice, 54_000)
    for at in (ist(2026, 12, 9), ist(2027, 1, 20)):
        run(at)
    paid = Invoice.objects.get(pk=invoice.pk)
    assert (paid.status, paid.overdue_since, paid.reminders_sent) == ("paid", None, 0)


def test_the_certificate_clears_it_and_is_final(deductor: Tenant, invoice: Invoice) -> None:
    transfer(invoice, 54_000)
    record(invoice, 5_000, " cert1 ")
    assert accounts() == {"bank": 54_000, "tds_credit": 5_000, "sales": -50_000, "gst": -9_000}
    assert AuditEntry.objects.get(action="billing.tds").details == {
        "amount_paise": 5_000,
        "certificate": "CERT1",
    }
    assert PaymentAttempt.objects.get(kind="tds").provider_payment_id == "CERT1"
    with pytest.raises(Conflict):
        record(invoice, 0)
    declare(deductor, 0)
    assert due(deductor) == ("paid", 0, 5_000)
    credit_notes.issue(invoice_id=invoice.id, total_paise=59_000, reason="Outage", at=CHARGE)
    assert ledger.balance_paise(deductor.id) == 59_000, "what the tax office holds for us is owed back too"


@pytest.mark.parametrize(("paise", "certificate"), [(-1, ""), (5_001, ""), (0, "CERT1")])
def test_an_amount_beyond_the_law_is_refused(invoice: Invoice, paise: int, certificate: str) -> None:
    with pytest.raises(InvalidRequest):
        record(invoice, paise, certificate)


def test_what_was_not_deducted_after_all_is_due(deductor: Tenant, invoice: Invoice) -> None:
    transfer(invoice, 54_000)
    record(invoice, 1_000)
    assert due(deductor) == ("open", 4_000, 1_000)
    record(invoice, 0)
    assert due(deductor) == ("open", 5_000, 0)
    assert "tds" not in accounts()


def test_an_unpaid_invoice_follows_the_declaration(provider: RunningSimulator, payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    link = payment_links.pay_now(invoice=only_invoice(payer), at=CHARGE)
    for percent, left in ((10, 54_000), (2, 58_000), (0, 59_000)):
        declare(payer, percent)
        assert due(payer)[:2] == ("open", left)
    link.refresh_from_db()
    assert link.status == "failed", "the link of the former amount ended"


def test_one_with_a_payment_in_flight_or_a_silent_provider_stays(
    provider: RunningSimulator, payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)

    def silent(**_: Any) -> None:
        raise ProviderUnreachable

    with monkeypatch.context() as patched:
        patched.setattr(payment_links, "end_link", silent)
        declare(payer, 10)
        assert due(payer) == ("open", 59_000, 0)
        set_up_mandate(provider, payer)
        run(CHARGE)
    declare(payer, 10)
    assert due(payer) == ("processing", 59_000, 0)
    january = ist(2027, 1, 1, 0, 15)
    usage.take_snapshots(january)
    issuing.issue_due(january)
    assert due(payer) == ("open", 54_000, 5_000)
    declare(payer, 2)
    assert due(payer) == ("open", 58_000, 1_000), "the other one does not hold it up"


@pytest.mark.parametrize("catches_up", ["declaration", "run"])
def test_what_could_not_follow_at_once_follows_later(
    provider: RunningSimulator, api: Api, payer: Tenant, monkeypatch: pytest.MonkeyPatch, catches_up: str
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)

    def silent(**_: Any) -> None:
        raise ProviderUnreachable

    def declared(percent: int) -> None:
        assert api.patch("/v1/billing/profile", {"tds_percent": percent}).status_code == 200

    for percent, left in ((10, 54_000), (0, 59_000)):
        with monkeypatch.context() as patched:
            patched.setattr(payment_links, "end_link", silent)
            declared(percent)
        assert due(payer)[1] == (59_000 if percent else 54_000), "no answer"
        if catches_up == "run":
            assert run(CHARGE)["deductions"] == 1
        else:
            declared(percent)
        assert due(payer)[1] == left
    link = payment_links.pay_now(invoice=only_invoice(payer), at=CHARGE)
    declared(0)
    link.refresh_from_db()
    assert link.status == "created", "an invoice that follows already keeps its link"


def test_a_declaration_follows_once_a_debit_in_flight_has_failed(
    provider: RunningSimulator, payer: Tenant
) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    set_up_mandate(provider, payer)
    run(CHARGE)
    declare(payer, 10)
    assert run(CHARGE)["deductions"] == 0
    assert due(payer) == ("processing", 59_000, 0)
    attempts.fail(attempt_id=PaymentAttempt.objects.get(kind="autopay").pk, error=None, at=CHARGE)
    assert run(CHARGE)["deductions"] == 1
    assert due(payer) == ("failed", 54_000, 5_000)


def test_a_declaration_never_takes_more_than_is_due(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    transfer(only_invoice(payer), 58_000)
    declare(payer, 10)
    assert due(payer) == ("paid", 0, 1_000)
    assert ledger.balance_paise(payer.id) == 0


@pytest.mark.parametrize("paid", [0, 54_000])
def test_a_credit_note_lowers_what_is_deducted(deductor: Tenant, invoice: Invoice, paid: int) -> None:
    if paid:
        transfer(invoice, paid)
    credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="Outage", at=CHARGE)
    assert due(deductor) == ("paid" if paid else "open", 0 if paid else 43_200, 4_000)
    assert ledger.balance_paise(deductor.id) == (10_800 if paid else 0)
    credit_notes.issue(invoice_id=invoice.id, total_paise=47_200, reason="Outage", at=CHARGE)
    assert due(deductor) == ("paid" if paid else "void", 0, 0)
    assert ledger.balance_paise(deductor.id) == paid
    assert "tds" not in accounts()


@pytest.mark.parametrize("certificate", ["", "CERT1"])
def test_what_replaces_an_invoice_has_its_deduction_once(
    deductor: Tenant, invoice: Invoice, certificate: str
) -> None:
    transfer(invoice, 54_000)
    if certificate:
        record(invoice, 5_000, certificate)
    new = issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=CHARGE)
    assert (new.status, new.amount_due_paise) == ("paid", 0)
    assert ledger.balance_paise(deductor.id) == 0
    left = LedgerPosting.objects.filter(account__in=["tds", "tds_credit"]).aggregate(Sum("amount_paise"))
    assert left == {"amount_paise__sum": 5_000}
    assert_balanced()


def test_nobody_abroad_deducts_it(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.update(tds_percent=10, country="US")
    run(FIRST_OF_DECEMBER)
    assert due(payer) == ("open", 59_000, 0)
    assert "Less TDS" not in str(documents.of_invoice(only_invoice(payer), as_issued=True))


def test_the_api_declares_it(api: Api, payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    assert api.patch("/v1/billing/profile", {"tds_percent": 5}).status_code == 400
    for percent, deducted in ((10, 5_000), (0, 0), (2, 1_000)):
        answer = api.patch("/v1/billing/profile", {"tds_percent": percent})
        assert answer.json()["tds_percent"] == percent
        shown = api.get(f"/v1/billing/invoices/{only_invoice(payer).public_id}", Accept="application/json")
        assert shown.json()["tds_paise"] == deducted
        assert shown.json()["amount_due_paise"] == 59_000 - deducted


def test_the_same_declaration_again_leaves_what_staff_recorded(
    api: Api, deductor: Tenant, invoice: Invoice
) -> None:
    own = {"tenant": deductor, "act": "tds", "target_id": invoice.pk, "values": {}, "amount_paise": 0}
    act = StaffAct.objects.create(status="begun", asked_at=CHARGE, **own)
    record(invoice, 0)
    assert api.patch("/v1/billing/profile", {"tds_percent": 10}).status_code == 200
    assert due(deductor) == ("open", 59_000, 0)
    StaffAct.objects.filter(pk=act.pk).update(status="done")
    for percent in (2, 10):
        assert api.patch("/v1/billing/profile", {"tds_percent": percent}).status_code == 200
        assert run(CHARGE)["deductions"] == 0
        assert due(deductor) == ("open", 59_000, 0)
