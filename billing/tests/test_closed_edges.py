"""Edge cases of billing: trials, repeated mandate requests, billing while it is off, unusual notices."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings as service
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing import buyers, tasks
from billing.billing_run import run
from billing.invoices import documents
from billing.models import Invoice, Mandate, PayLink, PaymentAttempt, ProviderEvent
from billing.payments import bank_transfers, mandates, provider_notices
from billing.payments.razorpay import Razorpay
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.test_payments import answer, deliver, post
from gateway.clock import now
from tenants.models import Tenant, User
from tests.browsers import logged_in
from tests.fixtures import Api, assert_error
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    """An invoice of ₹590.00."""
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


@pytest.mark.parametrize("amount", ["590.00", "90.00"])
def test_a_payment_ends_no_trial(browser: Client, payer: Tenant, invoice: Invoice, amount: str) -> None:
    """Staff may start another trial of a tenant with an unpaid invoice."""
    Tenant.objects.filter(pk=payer.pk).update(billing_status="trialing", trial_ends_at=ist(2027, 6, 1))
    url = reverse("admin:billing_invoice_payment", args=[invoice.pk])
    browser.post(url, {"_form_submitted": "on", "amount": amount, "reference": "UTR1"})
    assert PaymentAttempt.objects.filter(invoice=invoice, kind="manual").exists()
    payer.refresh_from_db()
    assert (payer.billing_status, payer.billing_restricted) == ("trialing", False)


def test_another_mandate_ends_the_one_that_waits(api: Api, provider: RunningSimulator, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    first, again, other = (
        api.post("/v1/billing/mandate", {"method": method}).json() for method in ("upi", "upi", "card")
    )
    assert first["id"] == again["id"] != other["id"]
    mandates.cancel_replaced()
    rows = provider.control("GET", "payments")["registrations"]
    assert [row["status"] for row in rows] == ["cancelled", "issued"]
    answer(other["authorization_url"], "approve")
    mandates.reconcile(now())
    assert api.get("/v1/billing").json()["mandate"]["id"] == other["id"]


def test_a_mandate_approved_on_a_page_that_was_replaced_ends_at_the_bank(
    api: Api, provider: RunningSimulator, payer: Tenant
) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    first, other = (api.post("/v1/billing/mandate", {"method": name}).json() for name in ("upi", "card"))
    answer(first["authorization_url"], "approve")
    mandates.reconcile(now())
    tokens = provider.control("GET", "payments")["tokens"]
    assert [token["recurring_details"]["status"] for token in tokens] == ["cancelled"]
    shown = api.get("/v1/billing").json()["mandate"]
    assert (shown["id"], shown["status"]) == (other["id"], "pending")


def test_three_pages_for_mandates_a_day(api: Api, provider: RunningSimulator, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    for paise in (100_000, 200_000, 300_000):
        assert api.post("/v1/billing/mandate", {"max_amount_paise": paise}).status_code == 201
    refused = api.post("/v1/billing/mandate", {"max_amount_paise": 400_000})
    assert assert_error(refused, 429, "rate_limited")["details"] == {"limit": 3}
    first = Mandate.objects.order_by("created_at").values_list("created_at", flat=True)[0]
    waited = now() + timedelta(seconds=int(refused["Retry-After"]))
    assert timedelta() <= waited - (first + timedelta(days=1)) < timedelta(seconds=10)
    assert len(provider.control("GET", "payments")["registrations"]) == 3
    assert api.post("/v1/billing/mandate", {"max_amount_paise": 300_000}).status_code == 201, "it waits"


def test_a_signed_notice_with_a_nul_is_refused(provider: RunningSimulator) -> None:
    body = json.dumps({"event": "payment.captured\0", "payload": {}})
    secret = service.RAZORPAY_WEBHOOK_SECRETS[0].encode()
    signature = hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()
    refused = post({"body": body, "signature": signature, "event_id": "evt_nul"})
    assert_error(refused, 400, "invalid_request")


def test_a_notice_without_an_id_is_known_by_its_bytes(provider: RunningSimulator) -> None:
    for name in ("payment.captured", "payment.failed", "payment.captured"):
        body = json.dumps({"event": name, "payload": {}})
        secret = service.RAZORPAY_WEBHOOK_SECRETS[0].encode()
        signature = hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()
        assert post({"body": body, "signature": signature, "event_id": ""}).status_code == 200
    stored = ProviderEvent.objects.order_by("id")
    assert [event.type for event in stored] == ["payment.captured", "payment.failed"]
    assert json.loads(bytes(stored[1].body))["event"] == "payment.failed"


def test_while_billing_is_off_notices_are_applied_and_nothing_else_is_done(
    payer: Tenant, settings: Settings
) -> None:
    Tenant.objects.filter(pk=payer.pk).update(billing_status="trialing", trial_ends_at=ist(2026, 11, 1))
    settings.BILLING_ENABLED = False
    body = json.dumps({"event": "payment.captured", "payload": {}}).encode()
    for name in ("1", "2", "3"):
        ProviderEvent.objects.create(provider="razorpay", event_id=name, type="payment.captured", body=body)
    waiting = ProviderEvent.objects.filter(processed_at__isnull=True).order_by("id")
    tasks.apply_notice(event_id=waiting[1].pk)
    assert list(waiting.values_list("event_id", flat=True)) == ["1", "3"]
    tasks.run_billing()
    payer.refresh_from_db()
    assert (payer.billing_status, waiting.count()) == ("trialing", 2)
    tasks.apply_notices()
    assert not waiting.exists()


def test_money_of_another_currency_is_not_counted(
    api: Api, provider: RunningSimulator, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = api.post(f"/v1/billing/invoices/{invoice.public_id}/pay").json()
    answer(paid["payment_url"], "approve")
    real = Razorpay.payment
    monkeypatch.setattr(Razorpay, "payment", lambda self, key: replace(real(self, key), currency="USD"))
    deliver(provider, now())
    assert only_invoice(invoice.tenant).amount_paid_paise == 0


def test_less_than_a_rupee_is_not_asked_for_and_makes_nobody_late(
    api: Api, provider: RunningSimulator, payer: Tenant, invoice: Invoice
) -> None:
    bank_transfers.record(invoice_id=invoice.id, amount_paise=58_960, reference="UTR1", at=FIRST_OF_DECEMBER)
    answered = api.post(f"/v1/billing/invoices/{invoice.public_id}/pay")
    assert_error(answered, 409, "invoice_not_payable")
    run(ist(2027, 1, 20))
    payer.refresh_from_db()
    assert (payer.billing_status, payer.billing_restricted) == ("active", False)


@pytest.mark.parametrize("rest", ["", "/returned"])
def test_nobody_pays_on_the_mailed_page_while_billing_is_off(
    provider: RunningSimulator, invoice: Invoice, settings: Settings, rest: str
) -> None:
    """After a restore from a backup, billing stays off until the payments since the backup are known."""
    path = PayLink.url_of(invoice).removeprefix(service.APP_URL)
    assert Client().get(path + rest).status_code == 200
    settings.BILLING_ENABLED = False
    assert Client().get(path + rest).status_code == 404
    assert Client().post(path).status_code == 404
    assert not PaymentAttempt.objects.filter(invoice=invoice).exists()


def test_the_printable_invoice_runs_and_loads_nothing(api: Api, payer: Tenant, invoice: Invoice) -> None:
    owner = logged_in(User.objects.create_user("owner@shop.example", "pw", tenant=payer))
    for page in (
        api.get(f"/v1/billing/invoices/{invoice.public_id}"),
        owner.get(f"/console/billing/invoices/{invoice.public_id}"),
    ):
        policy = dict(part.strip().split(" ", 1) for part in page["Content-Security-Policy"].split(";"))
        style = base64.b64encode(hashlib.sha256(documents.STYLE.encode()).digest()).decode()
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["img-src"] == "data:"
        directives = {"default-src", "img-src", "style-src", "base-uri", "form-action", "frame-ancestors"}
        assert set(policy) == directives
        assert policy["style-src"] == f"'sha256-{style}'"


def test_a_notice_of_a_refund_needs_no_payment_in_it(
    api: Api, provider: RunningSimulator, invoice: Invoice
) -> None:
    paid = api.post(f"/v1/billing/invoices/{invoice.public_id}/pay").json()
    answer(paid["payment_url"], "approve")
    deliver(provider, now())
    assert only_invoice(invoice.tenant).status == "paid"
    payment = PaymentAttempt.objects.get(captured_paise=59_000).provider_payment_id
    refund = provider.control("POST", "refund", {"payment_id": payment, "amount": 9_000})
    body = json.dumps({"event": "refund.processed", "payload": {"refund": {"entity": refund}}})
    secret = service.RAZORPAY_WEBHOOK_SECRETS[0].encode()
    signature = hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()
    assert post({"body": body, "signature": signature, "event_id": "evt_refund"}).status_code == 200
    provider_notices.apply_waiting(now())
    reopened = only_invoice(invoice.tenant)
    assert (reopened.status, reopened.amount_paid_paise) == ("open", 50_000)
