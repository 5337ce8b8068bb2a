"""The billing pages of the console: what the tenant sees and does, and that another tenant has no access."""

import csv
import re
from datetime import datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing import buyers, mails, restriction, usage
from billing.admin import cards
from billing.billing_run import run
from billing.invoices import credit_notes, documents, issuing
from billing.models import BillingProfile, Invoice, Mandate, PayLink, PaymentAttempt
from billing.payments import attempts, bank_transfers
from billing.pricing.money import rupees
from billing.pricing.periods import indian_date
from billing.restriction import RESTRICTED_AFTER
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.conftest import _billing_is_on as _billing_is_on
from billing.tests.conftest import _untypeset as _untypeset
from billing.tests.conftest import payer as payer
from billing.tests.conftest import provider as provider
from billing.tests.test_money import late_attempt
from billing.tests.test_payments import answer, deliver, refuse
from gateway.clock import IST, now
from phone_numbers.models import BusinessAccount
from tenants import audit
from tenants.models import OutboundMail, Tenant, User
from tests.browsers import browser_of, logged_in, text
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


@pytest.fixture
def customer(payer: Tenant) -> Client:
    return browser_of(payer)


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


def test_the_page_explains_the_next_invoice_to_the_paisa(customer: Client, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    for name in ("1", "2", "3"):
        connected(payer, name, (now() - timedelta(days=40), None))
    page = text(customer, "/console/billing")
    for words in ("First number", "2 × ₹250.00", "₹500.00", "₹180.00", "₹1,180.00", "+91 98000 2"):
        assert words in page


def test_the_search_finds_an_invoice_by_its_number_for_who_may_read_it(
    customer: Client, payer: Tenant, invoice: Invoice, stranger: Client
) -> None:
    assert invoice.number is not None
    path = f"/console/search?q={invoice.number.lower()}"
    found = customer.get(path, follow=True)
    assert (found.status_code, invoice.number in found.content.decode()) == (200, True)
    for client in (stranger, browser_of(payer, "developer")):
        assert "Nothing in the" in text(client, path)


def test_an_invoice_opens_in_a_browser_as_page_and_as_pdf(
    customer: Client, stranger: Client, invoice: Invoice
) -> None:
    assert invoice.number in text(customer, "/console/billing")
    assert invoice.number not in text(stranger, "/console/billing")
    assert invoice.number in text(customer, f"/console/billing/invoices/{invoice.public_id}")
    answer = customer.get(f"/console/billing/invoices/{invoice.public_id}?as=pdf")
    assert answer["Content-Type"] == "application/pdf"
    assert answer.content.startswith(b"%PDF")


def test_a_credit_note_opens_as_pdf(customer: Client, invoice: Invoice) -> None:
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="wrong", at=now())
    assert note.number in text(customer, "/console/billing")
    assert customer.get(f"/console/billing/credit-notes/{note.public_id}").content.startswith(b"%PDF")


def test_the_button_leads_to_the_payment_page(
    customer: Client, invoice: Invoice, provider: RunningSimulator
) -> None:
    answer = customer.post(f"/console/billing/invoices/{invoice.public_id}/pay")
    assert answer.status_code == 303
    assert answer["Location"].startswith(provider.url)
    page = customer.get("/console/billing")
    assert "form-action 'self' https:" in page["Content-Security-Policy"]


def test_who_returns_from_paying_is_not_offered_to_pay_again(
    customer: Client, invoice: Invoice, provider: RunningSimulator
) -> None:
    payment_url = customer.post(f"/console/billing/invoices/{invoice.public_id}/pay")["Location"]
    back = answer(payment_url, "approve").headers["Location"]
    path = urlsplit(back).path
    waiting = customer.get(path)
    assert (waiting.status_code, waiting["Refresh"]) == (200, "5")
    assert "being confirmed" in waiting.content.decode()
    assert "Pay ₹" not in waiting.content.decode()
    deliver(provider, now())
    paid = customer.get(path, follow=True)
    assert "This invoice is paid. Thank you." in paid.content.decode()
    assert "Refresh" not in paid


def test_nobody_pays_by_claiming_to_return(invoice: Invoice, provider: RunningSimulator) -> None:
    path = f"{urlsplit(PayLink.url_of(invoice)).path}/returned"
    assert Client().get(f"{path}?razorpay_payment_link_status=paid").status_code == 200
    invoice.refresh_from_db()
    assert (invoice.status, invoice.amount_paid_paise) == ("open", 0)
    Invoice.objects.filter(pk=invoice.pk).update(status="failed")
    assert "being confirmed" in Client().get(path).content.decode(), "the button would pay twice"
    assert Client().get("/pay/unknown/returned").status_code == 404
    assert Client().post(path).status_code == 405


def test_an_invoice_after_its_due_date_is_overdue_on_every_page_and_on_paper(
    customer: Client, staff: User, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    staff_browser = logged_in(staff)
    day = indian_date(invoice.due_at)
    pay_page = urlsplit(PayLink.url_of(invoice)).path
    for hours, shown, asked in (
        (-1, "To be paid", f"is to be paid by {day}"),
        (1, f"Overdue since {day}", f"has been overdue since {day}"),
    ):
        at = invoice.due_at + timedelta(hours=hours)
        for module in ("templatetags.money", "invoices.documents", "admin.invoices", "pay_page.views"):
            monkeypatch.setattr(f"billing.{module}.now", lambda at=at: at)
        assert f"{shown}</span>" in text(customer, "/console/billing")
        assert f"{shown}</p>" in text(customer, f"/console/billing/invoices/{invoice.public_id}")
        assert shown in text(staff_browser, f"/admin/billing/invoice/{invoice.pk}/change/")
        assert asked in text(customer, pay_page)


def test_a_refund_that_makes_an_invoice_due_again_restarts_the_full_time(invoice: Invoice) -> None:
    reopened = invoice.due_at + timedelta(days=30)
    again = reopened + timedelta(days=7)
    invoice.reopened_at = reopened
    assert documents.payment_state(invoice, again - timedelta(minutes=1)).text == "To be paid"
    assert documents.payment_state(invoice, again).text == f"Overdue since {indian_date(again)}"
    invoice.status = Invoice.Status.PROCESSING
    assert documents.payment_state(invoice, again).text == "Payment under way"


def test_a_reopened_invoice_has_its_new_due_date_for_everybody(
    customer: Client, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    Invoice.objects.filter(pk=invoice.pk).update(reopened_at=invoice.due_at + DAY)
    invoice.refresh_from_db()
    day = indian_date(invoice.due_at + 8 * DAY)
    assert f">{day}</td>" in text(customer, "/console/billing")
    mails.send_again(invoice)
    assert f"due on {invoice.pay_by.astimezone(IST):%-d %B %Y}" in OutboundMail.objects.latest("id").text
    for at, count in ((invoice.pay_by, 0), (invoice.pay_by + DAY, 1)):
        monkeypatch.setattr(cards, "now", lambda at=at: at)
        [card] = [card for card in cards._cards({}) if card.title == "Invoices overdue"]
        assert card.value == count


@pytest.mark.parametrize(
    ("transferred", "words", "thanks"),
    [(0, "Nothing due", False), (20_000, "Nothing due", False), (58_960, "Paid on 9 Dec 2026", True)],
)
def test_nobody_is_thanked_for_what_was_written_off(
    customer: Client, invoice: Invoice, transferred: int, words: str, thanks: bool
) -> None:
    at = ist(2026, 12, 9)
    if transferred:
        bank_transfers.record(invoice_id=invoice.id, amount_paise=transferred, reference="U1", at=at)
    if transferred < 58_900:
        bank_transfers.write_off(invoice_id=invoice.id, reason="Closed", at=at)
    assert f"{words}</span>" in text(customer, "/console/billing")
    assert f"{words}</p>" in text(customer, f"/console/billing/invoices/{invoice.public_id}")
    page = text(customer, urlsplit(PayLink.url_of(invoice)).path)
    assert ("Thank you" in page, "Nothing of this invoice is due any more." in page) == (thanks, not thanks)


def test_a_paid_invoice_cannot_be_paid_again(customer: Client, invoice: Invoice) -> None:
    Invoice.objects.filter(pk=invoice.pk).update(
        status="paid", paid_at=now(), amount_paid_paise=invoice.total_paise
    )
    page = text(customer, "/console/billing")
    assert "No invoice is unpaid." in page
    answer = customer.post(f"/console/billing/invoices/{invoice.public_id}/pay", follow=True)
    assert "cannot be paid now" in answer.content.decode()


def test_autopay_is_set_up_on_the_providers_page(
    customer: Client, payer: Tenant, provider: RunningSimulator
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    answer = customer.post("/console/billing/autopay", {"method": "upi", "max_rupees": "15000"})
    assert answer.status_code == 303
    mandate = Mandate.objects.get(tenant=payer)
    assert answer["Location"] == mandate.authorization_url
    assert mandate.max_amount_paise == 1_500_000
    assert "Waits for your approval" in text(customer, "/console/billing")


def test_a_limit_above_the_methods_is_explained(customer: Client, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    answer = customer.post("/console/billing/autopay", {"method": "upi", "max_rupees": "15001"})
    assert answer.status_code == 400
    assert "at most ₹15,000" in answer.content.decode()
    buyers.change(tenant_id=payer.id, changes={"phone": ""})
    answer = customer.post("/console/billing/autopay", {"method": "upi", "max_rupees": "15000"}, follow=True)
    assert "The billing profile is not complete." in answer.content.decode()
    assert not Mandate.objects.exists()


def test_an_incomplete_profile_is_named_and_completed(customer: Client, payer: Tenant) -> None:
    assert "The billing profile lacks" in text(customer, "/console/billing")
    bad = customer.post("/console/billing/profile", {**PROFILE, "country": "IN", "pin": "12"})
    assert bad.status_code == 400
    assert "six digits" in bad.content.decode()
    wrong = customer.post(
        "/console/billing/profile", {**PROFILE, "country": "IN", "tax_id": "29AAACI1681G1ZX"}
    )
    assert wrong.status_code == 400
    answer = customer.post("/console/billing/profile", {**PROFILE, "country": "IN"}, follow=True)
    assert "The billing profile lacks" not in answer.content.decode()
    assert BillingProfile.objects.get(tenant=payer).tax_id == PROFILE["tax_id"]


def test_the_role_billing_completes_a_profile_that_lacks_an_address_for_bills(payer: Tenant) -> None:
    person = browser_of(payer, "billing")
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    assert 'name="billing_email"' not in text(person, "/console/billing/profile"), "Settings change it"
    Tenant.objects.filter(pk=payer.pk).update(billing_email=None)
    assert "The billing profile lacks: Billing email." in text(person, "/console/billing")
    assert 'name="billing_email"' in text(person, "/console/billing/profile")
    sent = {**PROFILE, "country": "IN", "billing_email": "bills@asha.example"}
    page = person.post("/console/billing/profile", sent, follow=True).content.decode()
    payer.refresh_from_db()
    assert payer.billing_email == "bills@asha.example"
    assert "The billing profile lacks" not in page


def test_at_the_limit_of_the_audit_log_the_profile_stays_and_the_page_says_why(
    customer: Client, payer: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_A_DAY", 0)
    answer = customer.post("/console/billing/profile", {**PROFILE, "country": "IN"})
    assert answer.status_code == 400
    assert "which is the maximum" in answer.content.decode()
    assert BillingProfile.objects.get(tenant=payer).city == ""


def test_an_address_in_india_needs_state_pin_and_tax_number(customer: Client, payer: Tenant) -> None:
    for name in ("tax_id", "state_code", "pin"):
        answer = customer.post("/console/billing/profile", {**PROFILE, "country": "IN", name: ""})
        assert answer.status_code == 400, name
        assert answer.context["form"].errors == {name: ["Needed for an address in India."]}
    for name, wrong in (
        ("phone", "98450 12345"),
        ("phone", "+9184"),
        ("pin", "0560025"),
        ("tds_percent", "3"),
    ):
        answer = customer.post("/console/billing/profile", {**PROFILE, "country": "IN", name: wrong})
        assert list(answer.context["form"].errors) == [name], wrong


def test_the_country_is_chosen_by_name_and_kept_by_code(customer: Client, payer: Tenant) -> None:
    assert len(buyers.COUNTRIES) == 249, "those that ISO 3166 assigns"
    page = text(customer, "/console/billing/profile")
    assert '<option value="IN" selected>India</option>' in page
    assert '<option value="CI">Côte d’Ivoire</option>' in page
    refused = customer.post("/console/billing/profile", {**PROFILE, "country": "DE"})
    assert refused.status_code == 400
    assert "Our team changes the country" in refused.content.decode()
    assert BillingProfile.objects.get(tenant=payer).country == "IN"
    buyers.change(tenant_id=payer.id, changes={"country": "DE"}, evidence="Register of Ulm")
    assert "<p>Germany</p>" in documents.html(invoice_abroad(payer))
    for unknown in ("XX", "Germany", "de"):
        assert customer.post("/console/billing/profile", {**PROFILE, "country": unknown}).status_code == 400


def test_a_page_that_was_opened_before_does_not_undo_another_change(customer: Client, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    page = text(customer, "/console/billing/profile")
    shown = re.findall(r'name="initial-([^"]+)" value="([^"]*)"', page)
    opened = {f"initial-{name}": value for name, value in shown} | dict(shown)
    newer = {"tax_id": "27AAACI1681G1ZP", "state_code": "27", "city": "Pune", "tds_percent": 10}
    buyers.change(tenant_id=payer.id, changes=newer)
    buyers.change(tenant_id=payer.id, changes={"is_sez": True}, evidence="Letter of approval")
    sent = customer.post("/console/billing/profile", opened | {"phone": "+919845099999"})
    assert sent.status_code == 302
    stored = BillingProfile.objects.get(tenant=payer)
    for name, value in (newer | {"is_sez": True, "phone": "+919845099999"}).items():
        assert getattr(stored, name) == value, name


def test_a_stored_country_that_iso_does_not_know_is_kept(customer: Client, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes={**PROFILE, "country": "XK"}, evidence="Register")
    assert '<option value="XK" selected>XK</option>' in text(customer, "/console/billing/profile")
    customer.post("/console/billing/profile", {**PROFILE, "country": "XK", "city": "Pristina"})
    stored = BillingProfile.objects.get(tenant=payer)
    assert (stored.country, stored.city) == ("XK", "Pristina")


def invoice_abroad(payer: Tenant) -> Invoice:
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


def become_overdue(invoice: Invoice) -> None:
    at = now()
    Invoice.objects.filter(pk=invoice.pk).update(overdue_since=at)
    restriction.refresh(tenant_id=invoice.tenant_id, at=at)


def test_home_warns_of_what_is_overdue(customer: Client, invoice: Invoice, payer: Tenant) -> None:
    january = ist(2027, 1, 1, 0, 15)
    assert (usage.take_snapshots(january), issuing.issue_due(january)) == (1, 1), "not overdue"
    become_overdue(invoice)
    closes = indian_date(max(now() + RESTRICTED_AFTER, invoice.due_at))
    assert f"₹590.00 is overdue. From {closes} no further number" in text(customer, "/console")
    Tenant.objects.filter(pk=payer.pk).update(billing_restricted=True)
    assert "₹590.00 is long overdue: no further number can be connected" in text(customer, "/console")
    numbers = text(customer, "/console/numbers")
    assert "No further number can be connected" in numbers
    assert "Connect a number" not in numbers


def test_a_suspended_business_pays_and_is_offered_no_autopay(
    customer: Client, invoice: Invoice, payer: Tenant
) -> None:
    assert "Set up autopay" in text(customer, "/console/billing")
    Tenant.objects.filter(pk=payer.pk).update(status="suspended")
    page = text(customer, "/console/billing")
    assert "Set up autopay" not in page
    assert "Pay ₹590.00 for November 2026" in page


def test_while_billing_is_off_the_page_says_so(customer: Client, settings: Settings) -> None:
    settings.BILLING_ENABLED = False
    assert "Nothing is charged." in text(customer, "/console/billing")
    assert (
        customer.post("/console/billing/autopay", {"method": "upi", "max_rupees": "590"}).status_code == 404
    )


def test_home_and_billing_say_why_a_debit_failed(customer: Client, invoice: Invoice, payer: Tenant) -> None:
    late_attempt(invoice, "pat_x", kind="autopay", error={"reason": "insufficient_funds"})
    Tenant.objects.filter(pk=payer.pk).update(billing_status="past_due", past_due_since=now())
    for page in ("/console", "/console/billing"):
        assert "The last debit failed: the account has too little money." in text(customer, page)


def test_home_warns_before_a_trial_or_a_mandate_ends_and_when_its_limit_is_too_low(
    customer: Client, payer: Tenant
) -> None:
    Tenant.objects.filter(pk=payer.pk).update(
        billing_status="trialing", trial_ends_at=now() + timedelta(days=3)
    )
    assert "Your trial ends on" in text(customer, "/console")
    Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=now() + timedelta(days=30))
    assert "Your trial ends on" not in text(customer, "/console")
    Tenant.objects.filter(pk=payer.pk).update(billing_status="active", trial_ends_at=ist(2026, 11, 1))
    connected(payer, "1", (now() - timedelta(days=40), None))
    mandate = Mandate.objects.create(
        tenant=payer,
        method="upi",
        status="active",
        max_amount_paise=58_900,
        expires_at=now() + timedelta(days=9),
    )
    page = text(customer, "/console")
    assert "Your autopay mandate ends on" in page
    assert "is above the limit of your autopay mandate, ₹589.00." in page
    Mandate.objects.filter(pk=mandate.pk).update(
        max_amount_paise=1_500_000, expires_at=now() + timedelta(days=300)
    )
    assert "autopay mandate" not in text(customer, "/console")
    Tenant.objects.filter(pk=payer.pk).update(
        billing_status="trialing", trial_ends_at=now() + timedelta(days=3)
    )
    assert "Set up autopay" not in text(customer, "/console"), "it is set up already"


@pytest.mark.parametrize(("limit", "is_above"), [(54_000, False), (53_999, True)])
def test_home_compares_the_limit_with_what_is_debited(
    customer: Client, payer: Tenant, limit: int, is_above: bool
) -> None:
    """₹50.00 of the next invoice is deducted at source."""
    buyers.change(tenant_id=payer.id, changes={**PROFILE, "tds_percent": 10})
    connected(payer, "1", (now() - timedelta(days=40), None))
    Mandate.objects.create(tenant=payer, method="upi", status="active", max_amount_paise=limit)
    assert ("above the limit of your autopay mandate" in text(customer, "/console")) is is_above


DAY, MOMENT = timedelta(days=1), timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("status", "ends", "mandate", "warns"),
    [
        ("trialing", 7 * DAY, None, True),
        ("trialing", 7 * DAY + MOMENT, None, False),
        ("trialing", MOMENT, "pending", True),
        ("trialing", timedelta(), None, False),
        ("trialing", DAY, "active", False),
        ("trialing", DAY, "paused", True),
        ("active", DAY, None, False),
    ],
)
def test_home_warns_in_the_last_week_of_a_trial_without_autopay(
    customer: Client,
    payer: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    ends: timedelta,
    mandate: str | None,
    warns: bool,
) -> None:
    at = now()
    monkeypatch.setattr("console.billing_warnings.now", lambda: at)
    Tenant.objects.filter(pk=payer.pk).update(billing_status=status, trial_ends_at=at + ends)
    if mandate:
        Mandate.objects.create(tenant=payer, method="upi", status=mandate, max_amount_paise=1_500_000)
    assert ("Your trial ends on" in text(customer, "/console")) is warns


def test_a_buyer_abroad_is_not_asked_to_set_up_autopay(customer: Client, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    Tenant.objects.filter(pk=payer.pk).update(billing_status="trialing", trial_ends_at=now() + DAY)
    for country, asked in (("IN", True), ("US", False)):
        buyers.change(tenant_id=payer.id, changes={"country": country}, evidence="Register")
        for path in ("/console", "/console/billing"):
            assert ("Set up autopay" in text(customer, path)) is asked, (country, path)
    assert "Autopay needs an account in India" in text(customer, "/console/billing")


@pytest.mark.parametrize(
    ("status", "expires", "limit", "warnings"),
    [
        ("active", 30 * DAY, 59_000, ["mandate ends on"]),
        ("active", 30 * DAY + MOMENT, 58_999, ["is above the limit"]),
        ("active", None, 59_000, []),
        ("active", -DAY, 1, ["mandate ends on", "is above the limit"]),
        ("paused", DAY, 1, []),
    ],
)
def test_home_warns_of_a_mandate_in_its_last_month_or_below_the_next_invoice(
    customer: Client,
    payer: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    expires: timedelta | None,
    limit: int,
    warnings: list[str],
) -> None:
    at = ist(2026, 11, 15)
    monkeypatch.setattr("console.billing_warnings.now", lambda: at)
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))
    Mandate.objects.create(
        tenant=payer,
        method="upi",
        status=status,
        max_amount_paise=limit,
        expires_at=at + expires if expires else None,
    )
    page = text(customer, "/console")
    assert [words for words in ("mandate ends on", "is above the limit") if words in page] == warnings


def _support_view(tenant: Tenant) -> Client:
    client = logged_in(User.objects.create_superuser("boss@service.example"))
    path = reverse("admin:tenants_tenant_see_as", args=[tenant.pk])
    client.post(path, {"reason": "ticket 7", "_form_submitted": "on"})
    return client


@pytest.mark.parametrize(
    ("at", "is_connected", "warns"),
    [
        (ist(2026, 11, 20, 23, 59), True, False),
        (ist(2026, 11, 21), True, True),
        (ist(2026, 11, 30, 23, 59), True, True),
        (ist(2026, 11, 21), False, False),
    ],
)
def test_home_warns_of_missing_details_from_ten_days_before_an_invoice(
    customer: Client,
    payer: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    at: datetime,
    is_connected: bool,
    warns: bool,
) -> None:
    monkeypatch.setattr("console.billing_warnings.now", lambda: at)
    if is_connected:
        connected(payer, "1", (ist(2026, 11, 3), None))
    assert ("lacks details that the next invoice needs" in text(customer, "/console")) is warns
    assert ("Complete it" in text(customer, "/console")) is warns
    seen_by_support = text(_support_view(payer), "/console")
    assert ("lacks details that the next invoice needs" in seen_by_support) is warns
    assert "Complete it" not in seen_by_support
    if warns:
        Tenant.objects.filter(pk=payer.pk).update(billing_status="trialing", trial_ends_at=ist(2027, 1, 1))
        assert "lacks details" not in text(customer, "/console"), "the trial's months get no invoice"
        Tenant.objects.filter(pk=payer.pk).update(billing_status="active", trial_ends_at=ist(2026, 11, 1))
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    assert "lacks details" not in text(customer, "/console")


def test_home_names_the_most_urgent_warnings_first(customer: Client, invoice: Invoice) -> None:
    BusinessAccount.objects.update(token_expires_at=now() + DAY)
    become_overdue(invoice)
    page = text(customer, "/console")
    assert re.findall(r'<div class="note (\w+)"><p>(The token|₹590.00 is overdue)', page) == [
        ("bad", "₹590.00 is overdue"),
        ("warn", "The token"),
    ]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "Off. Each invoice comes with a payment link."),
        ("active", "On UPI asha@upi, up to ₹15,000.00 a month. Ends "),
        ("pending", "Waits for your approval"),
        ("paused", "Paused Each invoice comes with a payment link until"),
        ("rejected", "Rejected Each invoice"),
        ("cancelled", "Cancelled Each invoice"),
        ("expired", "Expired Each invoice"),
    ],
)
def test_the_page_says_how_autopay_stands(
    customer: Client, payer: Tenant, status: str | None, words: str
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    if status:
        Mandate.objects.create(
            tenant=payer,
            method="upi",
            status=status,
            instrument="asha@upi",
            max_amount_paise=1_500_000,
            expires_at=now() + DAY,
        )
    page = " ".join(re.sub(r"<[^>]+>", " ", text(customer, "/console/billing")).split())
    assert page.partition("Autopay ")[2].startswith(words)
    assert ("Change autopay" in page) is (status == "active")


def test_staff_see_how_many_profiles_lack_what_an_invoice_needs(payer: Tenant, staff: User) -> None:
    buyers.profile_of(payer)
    assert cards.incomplete_profiles() == 1
    page = text(logged_in(staff), "/admin/")
    assert "Buyer data missing" in page
    assert "Invoices overdue" in page
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    assert cards.incomplete_profiles() == 0


def test_the_statement_of_account_is_a_page_and_a_csv(customer: Client, invoice: Invoice) -> None:
    page = reverse("console_statement")
    total = rupees(invoice.total_paise)
    assert total in customer.get(page).content.decode()
    rows = list(csv.reader(StringIO(customer.get(f"{page}?as=csv").content.decode())))
    assert rows[0] == ["Date", "What", "Document", "Amount", "Owed"]
    assert rows[1][1:3] == ["Invoice issued", invoice.number]
    assert rows[1][3] == rows[1][4] == f"{invoice.total_paise / 100:.2f}"


def test_what_is_deducted_at_source_is_declared_with_the_profile(
    customer: Client, payer: Tenant, invoice: Invoice
) -> None:
    for percent in ("10", "2", "0"):
        sent = {**PROFILE, "country": "IN", "tds_percent": percent}
        assert customer.post(reverse("console_billing_profile"), sent).status_code == 302
        invoice.refresh_from_db()
        assert invoice.tds_paise == invoice.subtotal_paise * int(percent) // 100
        assert invoice.amount_due_paise == invoice.total_paise - invoice.tds_paise
    button = f"Pay {rupees(invoice.amount_due_paise)} for November 2026"
    assert button in text(customer, reverse("console_billing"))


def test_a_declaration_is_saved_also_if_the_provider_refuses_to_end_a_link(
    customer: Client, payer: Tenant, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_attempt(invoice, "pat_x", status="created", expires_at=now() + DAY)
    monkeypatch.setattr(
        attempts, "provider", lambda _: SimpleNamespace(create_link=refuse, find_link=lambda _: None)
    )
    sent = {**PROFILE, "country": "IN", "tds_percent": "2"}
    assert customer.post(reverse("console_billing_profile"), sent).status_code == 302
    assert BillingProfile.objects.get(tenant=payer).tds_percent == 2


def test_everything_that_is_due_is_paid_at_once(
    provider: RunningSimulator, customer: Client, payer: Tenant, invoice: Invoice
) -> None:
    run(ist(2027, 1, 1, 0, 15))
    page = text(customer, reverse("console_billing"))
    assert "Pay all 2 at once" in page
    first, second = Invoice.objects.order_by("id")
    assert re.findall(r"<tr><td><code>([^<]+)", page) == [second.number, first.number]
    statement = text(customer, reverse("console_statement"))
    assert re.findall(r"<td>Invoice issued</td><td>([^<]+)", statement) == [second.number, first.number]
    sent = customer.post(reverse("console_pay_all"))
    link = PaymentAttempt.objects.get(pays_all=True)
    assert (sent.status_code, sent["Location"]) == (303, link.payment_url)
    assert link.amount_paise == sum(row.amount_due_paise for row in Invoice.objects.all())
