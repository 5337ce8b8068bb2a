"""The tenant's side: how to pay on the document, several invoices with one payment, the statement of account."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.test import Client
from pytest_django import Settings

from billing import accounting, ledger, tenant_overview
from billing.billing_run import run
from billing.invoices import credit_notes, documents
from billing.models import BillingProfile, Invoice, PayLink, PaymentAttempt
from billing.payments import attempts, bank_transfers, payment_links
from billing.tests.conftest import FIRST_OF_DECEMBER, assert_balanced, connected, ist, only_invoice
from billing.tests.test_ledger import transfer
from billing.tests.test_money import late_attempt
from billing.tests.test_payments import CHARGE, answer, deliver, set_up_mandate
from gateway.api.errors import Conflict, RateLimited
from tenants.models import OutboundMail, Tenant
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

AT = ist(2027, 1, 2, 12)


@pytest.fixture
def _directly(settings: Settings) -> None:
    settings.BILLING_BANK_ACCOUNT = "Example Bank, account 000111, IFSC EXMP0000001"
    settings.BILLING_UPI_ID = "seller@examplebank"
    settings.BILLING_SELLER_CONTACT = "accounts@seller.example"


@pytest.fixture
def two(payer: Tenant) -> list[Invoice]:
    """The unpaid invoices of November and December, of ₹590.00 each."""
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    run(ist(2027, 1, 1, 0, 15))
    return list(Invoice.objects.order_by("id"))


def upi_code(invoice: Invoice, rupees: str) -> str | None:
    """The QR code that pays an amount of an invoice to the seller of `_directly`."""
    return documents.qr_code(
        "upi://pay?pa=seller@examplebank&pn=Example%20Messaging%20Private%20Limited"
        f"&am={rupees}&cu=INR&tn={invoice.number}"
    )


def statuses() -> list[str]:
    assert_balanced()
    return list(Invoice.objects.order_by("id").values_list("status", flat=True))


@pytest.mark.usefixtures("_directly")
def test_a_document_says_how_to_pay_what_was_due_when_it_was_issued(payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(payer)
    fields = documents.of_invoice(invoice, as_issued=True)
    assert "GSTIN 27AAPFU0939F1ZV, PAN AAPFU0939F" in fields["seller"]
    assert "accounts@seller.example" in fields["seller"]
    assert fields["payment"]["rows"] == [
        ("To be paid", "₹590.00"),
        ("Bank transfer", "Example Bank, account 000111, IFSC EXMP0000001"),
        ("UPI", "seller@examplebank"),
        ("Reference", invoice.number),
    ]
    assert fields["words"].startswith("Amount in words: Rupees")
    assert fields["payment"]["qr"] == upi_code(invoice, "590.00")
    transfer(invoice, 59_000)
    invoice.refresh_from_db()
    assert documents.of_invoice(invoice)["payment"] is None
    assert documents.of_invoice(invoice, as_issued=True)["payment"] == fields["payment"]


@pytest.mark.usefixtures("_directly", "_typeset")
def test_a_mail_leads_to_the_invoice_itself(client: Client, payer: Tenant) -> None:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(payer)
    page = client.get(PayLink.url_of(invoice)).content.decode()
    assert "seller@examplebank" in page
    assert "QR code that pays ₹590.00 by UPI" in page
    shown = client.get(f"{PayLink.url_of(invoice)}/invoice")
    assert "Tax invoice" in shown.content.decode()
    assert "default-src 'none'" in shown["Content-Security-Policy"]
    paper = client.get(f"{PayLink.url_of(invoice)}/invoice?as=pdf")
    assert paper.content.startswith(b"%PDF")
    assert client.get("/pay/unknown/invoice").status_code == 404
    transfer(invoice, 9_000)
    assert str(upi_code(invoice, "500.00")) in client.get(PayLink.url_of(invoice)).content.decode()
    transfer(invoice, 50_000, "U2")
    run(CHARGE)
    assert f"{PayLink.url_of(invoice)}/invoice" in OutboundMail.objects.get(subject__startswith="Rec").text


def test_what_a_mail_leads_to_is_kept_by_no_browser(client: Client, invoice: Invoice) -> None:
    for path in ("", "/invoice", "/invoice?as=pdf", "/returned"):
        answered = client.get(f"{PayLink.url_of(invoice)}{path}")
        assert answered.status_code == 200
        assert "no-store" in answered["Cache-Control"], path
    for path in ("/invoice", "/returned"):
        assert client.post(f"{PayLink.url_of(invoice)}{path}").status_code == 405


def test_one_payment_pays_everything_that_is_due(
    provider: RunningSimulator, client: Client, payer: Tenant, two: list[Invoice]
) -> None:
    page = PayLink.url_of(two[1])
    assert "Pay all 2 open invoices: ₹1,180.00" in client.get(page).content.decode()
    sent = client.post(page, {"all": "1"})
    link = PaymentAttempt.objects.get()
    assert (sent.status_code, sent["Location"]) == (303, link.payment_url)
    assert (link.amount_paise, link.invoice_id, link.pays_all) == (118_000, two[0].id, True)
    assert payment_links.pay_all(tenant_id=payer.id, at=AT) == link, "asked again, the same one"
    answer(link.payment_url or "", "approve")
    seen = deliver(provider, AT)
    assert statuses() == ["paid", "paid"]
    assert ledger.balance_paise(payer.id) == 0
    with pytest.raises(Conflict, match="Nothing is due"):
        payment_links.pay_all(tenant_id=payer.id, at=AT)
    link.refresh_from_db()
    provider.control("POST", "refund", {"payment_id": link.provider_payment_id})
    deliver(provider, AT, since=seen)
    assert [invoice.amount_due_paise for invoice in Invoice.objects.order_by("id")] == [59_000, 59_000]
    assert statuses() == ["open", "open"]


@pytest.mark.parametrize("paid", [[0], [1], [0, 1]])
def test_an_invoice_whose_link_was_just_paid_is_not_asked_for_again(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice], paid: list[int]
) -> None:
    for place in paid:
        answer(payment_links.pay_now(invoice=two[place], at=AT).payment_url or "", "approve")
    assert statuses() == ["open", "open"], "the provider's notice has not arrived"
    if len(paid) == 2:
        with pytest.raises(Conflict, match="Nothing is due"):
            payment_links.pay_all(tenant_id=payer.id, at=AT)
    else:
        link = payment_links.pay_all(tenant_id=payer.id, at=AT)
        assert (link.invoice_id, link.amount_paise) == (two[1 - paid[0]].id, 59_000)
        answer(link.payment_url or "", "approve")
        deliver(provider, AT)
    assert statuses() == ["paid", "paid"]
    assert ledger.balance_paise(payer.id) == 0


def test_the_providers_page_names_the_invoice_and_leads_back(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice]
) -> None:
    BillingProfile.objects.update(legal_name="", phone="+919845012345")
    payment_links.pay_now(invoice=two[0], at=AT)
    BillingProfile.objects.update(legal_name="Asha Global")
    payment_links.pay_now(invoice=two[1], at=AT, return_url="https://shop.example/paid")
    payment_links.pay_all(tenant_id=payer.id, at=AT)
    back = f"{PayLink.url_of(two[0])}/returned"
    rows = provider.control("GET", "payments")["payment_links"]
    assert [(row["description"], row["amount"], row["callback_url"]) for row in rows] == [
        (f"Invoice {two[0].number}", 59_000, back),
        (f"Invoice {two[1].number}", 59_000, "https://shop.example/paid"),
        ("All open invoices", 118_000, back),
    ]
    assert {row["expire_by"] for row in rows} == {int((AT + timedelta(days=1)).timestamp())}
    known = {"email": "bills@shop.example", "contact": "+919845012345"}
    assert [row["customer"] for row in rows[:2]] == [
        {"name": name, **known} for name in (payer.name, "Asha Global")
    ]


@pytest.mark.parametrize("is_of_all", [True, False])
def test_after_a_link_has_ended_another_asks_for_the_same(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice], is_of_all: bool
) -> None:
    def pay(at: datetime) -> PaymentAttempt:
        if is_of_all:
            return payment_links.pay_all(tenant_id=payer.id, at=at)
        return payment_links.pay_now(invoice=two[0], at=at, return_url="https://shop.example/paid")

    first = pay(AT)
    provider.control("POST", "clock/advance", {"hours": 24 * 365})
    again = pay(AT + timedelta(hours=25))
    first.refresh_from_db()
    assert (first.status, again.status) == ("failed", "created")
    for name in ("amount_paise", "pays_all", "return_url", "invoice_id"):
        assert getattr(again, name) == getattr(first, name), name


def test_a_link_of_everything_ends_before_anything_else_is_paid_or_corrected(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice]
) -> None:
    acts: list[Callable[[datetime], object]] = [
        lambda at: payment_links.pay_now(invoice=two[1], at=at),
        lambda at: payment_links.pay_now(invoice=two[0], at=at),
        lambda at: credit_notes.issue(invoice_id=two[1].id, total_paise=11_800, reason="x", at=at),
        lambda at: bank_transfers.record(invoice_id=two[1].id, amount_paise=100, reference="U1", at=at),
    ]
    for day, act in enumerate(acts):
        link = payment_links.pay_all(tenant_id=payer.id, at=AT + timedelta(days=day))
        links = provider.control("GET", "payments")["payment_links"]
        live = [row["amount"] for row in links if row["status"] == "created"]
        assert live == [link.amount_paise], "nothing else can be paid beside it"
        act(AT + timedelta(days=day))
        link.refresh_from_db()
        assert link.status == "failed"
    last = payment_links.pay_all(tenant_id=payer.id, at=AT + timedelta(days=4))
    assert last.amount_paise == 118_000 - 11_800 - 100


def test_a_call_for_a_paid_invoice_leaves_the_link_for_all_others(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice]
) -> None:
    bank_transfers.record(invoice_id=two[1].id, amount_paise=59_000, reference="U1", at=AT)
    link = payment_links.pay_all(tenant_id=payer.id, at=AT)
    two[1].refresh_from_db()
    with pytest.raises(payment_links.InvoiceNotPayable):
        payment_links.pay_now(invoice=two[1], at=AT)
    link.refresh_from_db()
    assert link.status == "created"


@pytest.mark.parametrize("last", ["everything", "one"])
def test_an_invoice_has_three_links_a_day_of_which_the_last_stays(
    provider: RunningSimulator, client: Client, payer: Tenant, two: list[Invoice], last: str
) -> None:
    page = PayLink.url_of(two[0])
    kinds: list[dict[str, str]] = [{"all": "1"}, {}]
    stays, other = kinds if last == "everything" else kinds[::-1]
    answers = [client.post(page, sent) for sent in (stays, other, stays, other, other, stays)]
    assert [answered.status_code for answered in answers] == [303, 303, 303, 409, 409, 303]
    assert "At most 3" in answers[3].content.decode()
    assert answers[5]["Location"] == answers[2]["Location"]
    assert len(provider.control("GET", "payments")["payment_links"]) == 3
    answer(answers[5]["Location"], "approve")
    deliver(provider, AT)
    assert "This invoice cannot be paid now" in client.post(page).content.decode(), "it is paid"
    if last == "one":
        assert client.post(PayLink.url_of(two[1])).status_code == 303, "another invoice has its own"


def test_a_link_that_was_made_and_ended_meanwhile_counts(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first check of the limit and the lock, another process creates the last link of the day."""
    payment_links.pay_all(tenant_id=payer.id, at=AT)
    payment_links.pay_now(invoice=two[0], at=AT)
    payment_links.end_link(invoice=two[0], at=AT)

    def meanwhile(invoice_id: object, at: datetime) -> None:
        monkeypatch.undo()
        payment_links.pay_all(tenant_id=payer.id, at=AT)
        payment_links.end_link(invoice=two[0], at=AT)

    monkeypatch.setattr(attempts, "recheck_failed", meanwhile)
    with pytest.raises(RateLimited):
        payment_links.pay_now(invoice=two[0], at=AT)
    assert len(provider.control("GET", "payments")["payment_links"]) == 3


def test_a_link_of_everything_has_the_total_of_now(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice]
) -> None:
    assert payment_links.pay_all(tenant_id=payer.id, at=AT).amount_paise == 118_000
    Invoice.objects.filter(pk=two[1].pk).update(status="processing")
    assert payment_links.pay_all(tenant_id=payer.id, at=AT).amount_paise == 59_000


def test_no_debit_begins_beside_a_link_of_everything(
    provider: RunningSimulator, payer: Tenant, two: list[Invoice]
) -> None:
    set_up_mandate(provider, payer)
    link = payment_links.pay_all(tenant_id=payer.id, at=AT)
    run(AT)
    assert not PaymentAttempt.objects.filter(kind="autopay").exists()
    payment_links.end_link(invoice=two[1], at=AT)
    run(AT)
    assert PaymentAttempt.objects.get(kind="autopay").invoice_id == two[0].id
    attempts.refresh(link.id, AT)
    with pytest.raises(Conflict):
        payment_links.pay_now(invoice=two[0], at=AT)
    assert payment_links.pay_all(tenant_id=payer.id, at=AT).amount_paise == 59_000, "the other one alone"


@pytest.mark.parametrize(
    ("tried", "said"),
    [
        ([], None),
        ([("autopay", "failed", "unknown_to_us")], None),
        ([("autopay", "failed", "token_paused"), ("autopay", "failed", "unknown_to_us")], None),
        ([("autopay", "failed", "insufficient_funds"), ("autopay", "failed", "token_paused")], "paused"),
        ([("autopay", "failed", "token_paused"), ("autopay", "captured", "insufficient_funds")], "paused"),
        ([("autopay", "failed", "token_paused"), ("link", "failed", "insufficient_funds")], "paused"),
    ],
)
def test_the_reason_shown_is_of_the_last_debit_that_failed(
    invoice: Invoice, tried: list[tuple[str, str, str]], said: str | None
) -> None:
    for place, (kind, status, reason) in enumerate(tried):
        late_attempt(invoice, f"pat_{place}", kind=kind, status=status, error={"reason": reason})
    shown = tenant_overview.debit_failed_because(tenant_overview.of(invoice.tenant, AT))
    assert shown == (f"the mandate is {said}" if said else None)
    Invoice.objects.update(status="paid")
    assert tenant_overview.debit_failed_because(tenant_overview.of(invoice.tenant, AT)) is None


def test_the_statement_says_what_is_owed_after_each_act(payer: Tenant, two: list[Invoice]) -> None:
    transfer(two[0], 60_000, "UTR1")
    bank_transfers.write_off(invoice_id=two[1].id, reason="Secret", at=AT)
    lines = [
        (line.act, line.text, line.amount_paise, line.owed_paise) for line in accounting.statement(payer.id)
    ]
    assert lines == [
        ("Invoice issued", two[0].number, 59_000, 59_000),
        ("Bank transfer received", "UTR1", -60_000, -1_000),
        ("Invoice issued", two[1].number, 59_000, 58_000),
        ("Written off", "", -58_000, 0),
    ]
