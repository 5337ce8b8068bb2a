"""`/v1/billing*` and `/v1/admin/billing`: bodies, invalid input, and responses while billing is off."""

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from billing import buyers, mails, tenant_overview
from billing.billing_run import run
from billing.invoices import credit_notes, documents, issuing
from billing.models import BillingProfile, BillingSnapshot, Invoice, PayLink, PaymentAttempt, PlanVersion
from billing.payments import bank_transfers
from billing.tests.conftest import FIRST_OF_DECEMBER, PROFILE, connected, ist, only_invoice
from billing.tests.test_money import late_attempt
from billing.tests.test_payments import answer, deliver
from gateway.api import limits
from gateway.api.limits import Bulkhead
from gateway.clock import now
from gateway.ids import uuid7
from gateway.roles import KeyScope
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import AuditEntry, OutboundMail, SignUp, Tenant, User
from tenants.signup import sign_ups
from tests.fixtures import Api, assert_error, assert_service_headers
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db

ROUTES = [
    ("GET", "/v1/billing"),
    ("GET", "/v1/billing?unknown=1"),
    ("PATCH", "/v1/billing/profile"),
    ("POST", "/v1/billing/mandate"),
    ("GET", "/v1/billing/invoices"),
    ("GET", "/v1/billing/invoices/inv_x"),
    ("POST", "/v1/billing/invoices/inv_x/pay"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_while_off_every_route_says_so_after_authentication(
    api: Api, settings: Settings, method: str, path: str
) -> None:
    settings.BILLING_ENABLED = False
    assert_error(Api(None).request(method, path), 401, "unauthorized")
    error = assert_error(api.request(method, path), 503, "billing_disabled")
    assert error["details"] == {"billing_enabled": False}


def test_while_off_every_authenticated_caller_is_answered_so(
    tenant: Tenant, app_key: api_keys.NewKey, staff: User, settings: Settings
) -> None:
    settings.BILLING_ENABLED = False
    waiting = Tenant.objects.create(name="Waiting", status=Tenant.Status.PENDING_APPROVAL)
    test_key = api_keys.create(name="x", environment="test", tenant=tenant)
    without_scope = api_keys.create(name="x", environment="live", tenant=tenant, scopes={KeyScope.MESSAGES})
    of_waiting = api_keys.create(name="x", environment="live", tenant=waiting)
    for key in (test_key, without_scope, of_waiting, app_key):
        assert_error(Api(key.key).get("/v1/billing"), 503, "billing_disabled")
    assert_error(Api(bearer_tokens.open_session(staff).token).get("/v1/billing"), 503, "billing_disabled")
    assert_error(Api(f"wb_live_{'x' * 40}").get("/v1/billing"), 401, "unauthorized")


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    for name in ("1", "2", "3"):
        connected(payer, name, (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


def test_the_overview(api: Api, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (now() - timedelta(days=40), None))
    body = api.get("/v1/billing").json()
    assert list(body) == [
        "billing_status",
        "trial_ends_at",
        "past_due_since",
        "restricted",
        "plan",
        "active_numbers",
        "numbers",
        "next_charge",
        "mandate",
        "amount_due_paise",
        "open_invoices",
        "billing_profile",
    ]
    assert body["plan"] == {
        "code": "per_number_monthly",
        "currency": "INR",
        "first_number_paise": 50000,
        "additional_number_paise": 25000,
        "gst_percent": 18,
        "tax_inclusive": False,
        "included_numbers": 1,
        "due_days": 7,
        "version": None,
    }
    assert body["active_numbers"] == len(body["numbers"]) == 1
    assert set(body["numbers"][0]) == {"phone_number_id", "display_phone_number", "active_since"}
    charge = body["next_charge"]
    assert (charge["numbers"], charge["total_paise"], charge["estimate"]) == (1, 59000, True)
    assert (body["mandate"], body["amount_due_paise"], body["open_invoices"]) == (None, 0, 0)
    assert body["billing_profile"]["complete"] is True


def test_the_overview_has_ones_own_terms_and_what_is_owed(api: Api, payer: Tenant, invoice: Invoice) -> None:
    connected(payer, "9", (now() - timedelta(days=40), None))
    own = PlanVersion.objects.create(
        tenant=payer,
        starts="2026-01",
        first_number_paise=40_000,
        additional_number_paise=1_000,
        included_numbers=2,
        due_days=30,
        created_at=now(),
    )
    for period, status, paid in (("2027-01", "failed", 1_000), ("2027-02", "paid", 59_000)):
        copy_of(invoice, period, status=status, amount_paid_paise=paid)
    Tenant.objects.filter(pk=payer.pk).update(
        billing_status="past_due", past_due_since=ist(2026, 12, 8), billing_restricted=True
    )
    body = api.get("/v1/billing").json()
    assert (body["billing_status"], body["restricted"]) == ("past_due", True)
    assert (body["past_due_since"], body["trial_ends_at"]) == (
        "2026-12-07T18:30:00.000Z",
        "2026-10-31T18:30:00.000Z",
    )
    assert (body["open_invoices"], body["amount_due_paise"]) == (2, 2 * 118_000 - 1_000)
    plan = body["plan"]
    assert (plan["version"], plan["included_numbers"], plan["due_days"]) == (str(own.pk), 2, 30)
    assert (plan["first_number_paise"], plan["additional_number_paise"]) == (40_000, 1_000)
    assert body["next_charge"]["lines"][0]["unit_paise"] == 40_000
    seen = tenant_overview.of(Tenant.objects.get(pk=payer.pk), now())
    assert [unpaid.period for unpaid in seen.unpaid] == ["2026-11", "2027-01"]


def copy_of(invoice: Invoice, period: str, **values: Any) -> Invoice:
    """An invoice like another, of another month."""
    snapshot = BillingSnapshot.objects.get(pk=invoice.snapshot_id)
    snapshot.pk, snapshot.period = uuid7(), period
    snapshot.save(force_insert=True)
    row = Invoice.objects.get(pk=invoice.pk)
    row.pk, row.number, row.period, row.snapshot = uuid7(), f"WG/{period}", period, snapshot
    for name, value in values.items():
        setattr(row, name, value)
    row.save(force_insert=True)
    return row


def test_the_overview_of_a_trial_shows_its_first_charge(api: Api, payer: Tenant) -> None:
    Tenant.objects.filter(pk=payer.pk).update(billing_status="trialing", trial_ends_at=ist(2031, 1, 1))
    connected(payer, "1", (now() - timedelta(days=1), None))
    assert api.get("/v1/billing").json()["next_charge"] == {
        "period": "2031-01",
        "invoice_on": "2031-02-01",
        "numbers": 1,
        "lines": [{"description": "First number", "quantity": 1, "unit_paise": 50000, "amount_paise": 50000}],
        "taxes": [{"type": "IGST", "percent": 18, "amount_paise": 9000}],
        "subtotal_paise": 50000,
        "tax_paise": 9000,
        "total_paise": 59000,
        "estimate": True,
    }


@pytest.mark.parametrize(
    "values", [{"billing_status": "exempt"}, {"billing_status": None}, {"sandbox": True}]
)
def test_who_is_not_billed_has_no_next_charge(api: Api, payer: Tenant, values: dict[str, Any]) -> None:
    connected(payer, "1", (now() - timedelta(days=40), None))
    Tenant.objects.filter(pk=payer.pk).update(**values)
    body = api.get("/v1/billing").json()
    assert (body["next_charge"], body["active_numbers"]) == (None, 0)


def test_the_profile_begins_with_the_sign_up(api: Api, payer: Tenant) -> None:
    SignUp.objects.create(
        tenant=payer,
        email="a@shop.example",
        company="Asha",
        website="https://shop.example",
        tax_id_type="pan",
        tax_id="AAACI1681G",
        address="1 Road",
        city="Pune",
        state_code="27",
        pin_code="411001",
        phone="+919845012345",
    )
    profile = api.get("/v1/billing").json()["billing_profile"]
    assert (profile["legal_name"], profile["state_code"], profile["complete"]) == ("Asha", "27", True)


def test_the_profile_of_a_corrected_application_names_the_corrected_company(payer: Tenant) -> None:
    Tenant.objects.filter(pk=payer.pk).update(status="rejected")
    first = sign_ups.Application(
        company="Asha", website="https://a.in", tax_id="29AAACI1681G1ZL", tax_id_type="gstin", address="1 Road",
        city="Pune", state_code="29", pin_code="560001", phone="+919845012345",
    )  # fmt: skip
    SignUp.objects.create(tenant=payer, email="a@shop.example", **asdict(first))
    assert buyers.profile_of(payer).legal_name == "Asha"
    corrected = replace(first, company="Bela", tax_id="27AAPFU0939F1ZV", state_code="27")
    sign_ups.apply_again(corrected, tenant_id=payer.id)
    profile = buyers.profile_of(payer)
    assert (profile.legal_name, profile.tax_id, profile.state_code) == ("Bela", "27AAPFU0939F1ZV", "27")


def test_the_profile_is_changed_with_an_audit_entry(api: Api, payer: Tenant) -> None:
    lacking = ["address", "city", "pin", "state_code", "tax_id", "phone"]
    before = api.get("/v1/billing").json()["billing_profile"]
    assert (before["missing"], before["complete"]) == (lacking, False)
    assert {before[name] for name in (*lacking, "tax_id_type")} == {None}
    body = api.patch("/v1/billing/profile", PROFILE).json()
    assert (body["complete"], body["tax_id_type"]) == (True, "gstin")
    entry = AuditEntry.objects.get(action="billing.profile")
    assert (entry.details["before"]["pin"], entry.details["after"]["pin"]) == ("", "560025")
    assert api.patch("/v1/billing/profile", PROFILE).json() == body
    Tenant.objects.update(billing_email=None, contact_email=None)
    shown = api.get("/v1/billing").json()["billing_profile"]
    assert (shown["missing"], shown["complete"]) == (["billing_email"], False)
    assert AuditEntry.objects.filter(action="billing.profile").count() == 1, "nothing changed"


@pytest.mark.parametrize(
    "bad",
    [
        {"tax_id": "29AAACI1681G1ZM"},
        {"tax_id": 7},
        {"pin": "01234"},
        {"state_code": "25"},
        {"phone": "9845012345"},
        {"legal_name": ""},
        {"legal_name": "x" * 201},
        {"address": ["a"]},
        {"legal_name": "\u202eecnarF ed euqnaB"},
        {"address": "12 Road\nGSTIN 29AAACI1681G1ZL"},
        {"city": "Ulm\0"},
        {"is_sez": True},
        {"adress": "12 Residency Road"},
        {"city": None},
    ],
)
def test_a_bad_profile_is_refused(api: Api, payer: Tenant, bad: dict[str, Any]) -> None:
    error = assert_error(api.patch("/v1/billing/profile", bad), 400, "invalid_request")
    assert list(error["details"]["fields"]) == list(bad)
    assert not BillingProfile.objects.filter(pk=payer.pk).exclude(tax_id="").exists()


def test_a_mandate_is_set_up(api: Api, provider: RunningSimulator, payer: Tenant) -> None:
    error = assert_error(api.post("/v1/billing/mandate", {}), 400, "invalid_request")
    assert "pin" in error["details"]["missing"]
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    answered = api.post("/v1/billing/mandate", {"return_url": "https://shop.example/done"})
    body = answered.json()
    assert answered.status_code == 201
    assert list(body) == [
        "id",
        "status",
        "method",
        "max_amount_paise",
        "authorization_url",
        "authorization_expires_at",
        "replaces",
    ]
    assert (body["status"], body["method"], body["max_amount_paise"]) == ("pending", "upi", 1_500_000)
    assert "close this page" in answer(body["authorization_url"], "approve").text
    deliver(provider, now())
    shown = api.get("/v1/billing").json()["mandate"]
    assert shown == {
        "id": body["id"],
        "status": "active",
        "method": "upi",
        "instrument": "b***@okaxis",
        "max_amount_paise": 1_500_000,
        "expires_at": None,
    }
    [page] = provider.control("GET", "payments")["registrations"]
    assert (page["receipt"], page["customer_details"]["name"]) == (body["id"], PROFILE["legal_name"])
    assert (page["customer_details"]["email"], page["customer_details"]["contact"]) == (
        "bills@shop.example",
        PROFILE["phone"],
    )
    again = api.post("/v1/billing/mandate", {"max_amount_paise": 59_000}).json()
    assert (again["replaces"], again["status"], again["max_amount_paise"]) == (body["id"], "pending", 59_000)


@pytest.mark.parametrize(
    "bad",
    [
        {"method": "cash"},
        {"max_amount_paise": 0},
        {"max_amount_paise": "x"},
        {"max_amount_paise": 1_500_001},
        {"return_url": "ftp://x.example"},
        {"return_url": "http://shop.example"},
        {"return_url": "javascript://localhost/%0aalert(1)"},
        {"return_url": "https:///done"},
        {"return_url": "https://shop.example/a b"},
        {"return_url": "https://u:p@shop.example"},
        {"return_url": "https://["},
        {"return_url": 5},
    ],
)
def test_a_bad_mandate_is_refused(api: Api, payer: Tenant, bad: dict[str, Any]) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    error = assert_error(api.post("/v1/billing/mandate", bad), 400, "invalid_request")
    assert list(error["details"]["fields"]) == list(bad)


def test_a_silent_provider_is_502_and_leaves_no_mandate_waiting(
    api: Api, payer: Tenant, settings: Settings
) -> None:
    settings.RAZORPAY_BASE_URL = "http://127.0.0.1:9/v1"
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    assert_error(api.post("/v1/billing/mandate", {}), 502, "payment_provider_unreachable")
    assert api.get("/v1/billing").json()["mandate"]["status"] == "expired"


@pytest.mark.parametrize(
    ("billing_email", "contact_email", "to"),
    [
        ("bills@shop.example", "owner@shop.example", "bills@shop.example"),
        (None, "owner@shop.example", "owner@shop.example"),
    ],
)
def test_bills_go_to_the_address_for_bills_else_to_the_contact(
    invoice: Invoice, billing_email: str | None, contact_email: str, to: str
) -> None:
    tenant = invoice.tenant
    tenant.billing_email, tenant.contact_email = billing_email, contact_email
    mails.send_again(invoice)
    assert OutboundMail.objects.latest("id").to == to


def test_invoices_are_listed(api: Api, other_api: Api, invoice: Invoice) -> None:
    body = api.get("/v1/billing/invoices").json()
    assert body["next_cursor"] is None
    assert body["data"] == [
        {
            "id": invoice.public_id,
            "number": "WG/2627/000001",
            "period": "2026-11",
            "status": "open",
            "issued_at": "2026-11-30T18:45:00.000Z",
            "due_at": "2026-12-08T18:29:59.000Z",
            "paid_at": None,
            "currency": "INR",
            "active_numbers": 3,
            "total_paise": 118000,
            "amount_due_paise": 118000,
        }
    ]
    assert other_api.get("/v1/billing/invoices").json()["data"] == []
    assert_error(other_api.get(f"/v1/billing/invoices/{invoice.public_id}"), 404, "not_found")
    assert_error(api.get("/v1/billing/invoices?limit=0"), 400, "invalid_request")


def test_one_invoice_is_a_page_or_json(api: Api, invoice: Invoice) -> None:
    for accept, kind in (
        (None, "text/html"),
        ("*/*", "text/html"),
        ("text/html,application/xhtml+xml,application/json;q=0.9", "text/html"),
        ("application/json", "application/json"),
        ("application/json, text/html;q=0.5", "application/json"),
        ("image/png", "text/html"),
        ("nonsense", "text/html"),
    ):
        headers = {"Accept": accept} if accept else {}
        answered = api.get(f"/v1/billing/invoices/{invoice.public_id}", **headers)
        assert answered.status_code == 200, accept
        assert answered["Content-Type"].startswith(kind), accept
        assert "Accept" in answered["Vary"]
        assert_service_headers(answered)


def test_the_json_of_an_invoice(api: Api, invoice: Invoice) -> None:
    body = api.get(f"/v1/billing/invoices/{invoice.public_id}", Accept="application/json").json()
    assert body["buyer"] == {
        "name": "Asha Traders Private Limited",
        "gstin": "29AAACI1681G1ZL",
        "pan": "AAACI1681G",
        "foreign_tax_id": None,
        "address": "12 Residency Road, Bengaluru 560025",
        "state_code": "29",
        "state": "Karnataka",
        "country": "IN",
    }
    assert body["lines"] == [
        {
            "description": "First number",
            "sac": "998315",
            "quantity": 1,
            "unit_paise": 50000,
            "amount_paise": 50000,
            "gst_percent": 18,
            "plan_version": None,
        },
        {
            "description": "Further numbers",
            "sac": "998315",
            "quantity": 2,
            "unit_paise": 25000,
            "amount_paise": 50000,
            "gst_percent": 18,
            "plan_version": None,
        },
    ]
    assert body["taxes"] == [{"type": "IGST", "percent": 18, "amount_paise": 18000}]
    assert (body["place_of_supply"], body["supply_type"]) == ("29-Karnataka", "inter_state")
    assert body["total_in_words"] == "Rupees one thousand one hundred and eighty only"
    assert (body["attempts"], body["irn"], body["reverse_charge"]) == ([], None, False)


def test_the_json_of_an_invoice_after_payments_and_corrections(api: Api, invoice: Invoice) -> None:
    error = {"code": "BAD", "reason": "payment_declined", "message": "Declined"}
    failed = late_attempt(
        invoice,
        "pat_1",
        kind="autopay",
        error=error,
        scheduled_for=ist(2026, 12, 1),
        completed_at=ist(2026, 12, 2),
    )
    at = ist(2026, 12, 3)
    paid = bank_transfers.record(invoice_id=invoice.id, amount_paise=10_000, reference="U1", at=at)
    note = credit_notes.issue(invoice_id=invoice.id, total_paise=11_800, reason="Outage", at=at)
    new = issuing.replace(invoice_id=invoice.id, reason="Wrong buyer", at=at)
    path = f"/v1/billing/invoices/{invoice.public_id}"
    body = api.get(path, Accept="application/json").json()
    assert (body["status"], body["credited_paise"], body["amount_due_paise"]) == ("void", 118_000, 0)
    assert body["attempts"] == [
        {
            "id": paid.public_id,
            "kind": "manual",
            "status": "captured",
            "scheduled_for": None,
            "completed_at": "2026-12-02T18:30:00.000Z",
            "error": None,
        },
        {
            "id": failed.public_id,
            "kind": "autopay",
            "status": "failed",
            "scheduled_for": "2026-11-30T18:30:00.000Z",
            "completed_at": "2026-12-01T18:30:00.000Z",
            "error": error,
        },
    ]
    assert body["credit_notes"][0] == {
        "id": note.public_id,
        "number": note.number,
        "issued_at": "2026-12-02T18:30:00.000Z",
        "total_paise": 11_800,
        "reason": "Outage",
    }
    body = api.get(f"/v1/billing/invoices/{new.public_id}", Accept="application/json").json()
    assert (body["replaces"], body["amount_paid_paise"]) == (invoice.public_id, 10_000)


def test_the_page_holds_what_rule_46_asks_for(api: Api, invoice: Invoice) -> None:
    page = api.get(f"/v1/billing/invoices/{invoice.public_id}").content.decode()
    for text in (
        "Tax invoice",
        "WG/2627/000001",
        "1 Dec 2026",
        "27AAPFU0939F1ZV",
        "29AAACI1681G1ZL",
        "Asha Traders Private Limited",
        "998315",
        "29-Karnataka",
        "Reverse charge</dt><dd>No",
        "IGST at 18%",
        "₹180.00",
        "₹1,180.00",
        "Rupees one thousand one hundred and eighty only",
        "This document was generated electronically: no signature is needed.",
    ):
        assert text in page
    assert "<script" not in page
    assert f"<style>{documents.STYLE}</style>" in page, "the policy's hash is of these very bytes"


def test_a_name_cannot_break_out_of_the_page(api: Api, payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes={"legal_name": "<script>alert(1)</script>"})
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    page = api.get(f"/v1/billing/invoices/{only_invoice(payer).public_id}").content.decode()
    assert "<script" not in page


def test_paying_now(api: Api, provider: RunningSimulator, payer: Tenant, invoice: Invoice) -> None:
    path = f"/v1/billing/invoices/{invoice.public_id}/pay"
    body = api.post(path, {"return_url": "https://shop.example/paid"}).json()
    assert body["status"] == "open"
    assert (body["attempt"]["kind"], body["attempt"]["status"]) == ("link", "created")
    assert api.post(path).json()["payment_url"] == body["payment_url"]
    answer(body["payment_url"], "approve")
    deliver(provider, now())
    error = assert_error(api.post(path), 409, "invoice_not_payable")
    assert error["details"] == {"status": "paid", "in_flight": None}
    paid = api.get(f"/v1/billing/invoices/{invoice.public_id}", Accept="application/json").json()
    assert (paid["status"], paid["amount_due_paise"], paid["attempts"][0]["status"]) == (
        "paid",
        0,
        "captured",
    )


def test_an_invoice_that_is_being_debited_names_its_debit(api: Api, invoice: Invoice) -> None:
    debit = late_attempt(invoice, "pat_1", kind="autopay", status="processing")
    Invoice.objects.update(status="processing")
    error = assert_error(
        api.post(f"/v1/billing/invoices/{invoice.public_id}/pay"), 409, "invoice_not_payable"
    )
    assert error["details"] == {"status": "processing", "in_flight": debit.public_id}


def test_the_mailed_page_leads_to_the_provider(provider: RunningSimulator, invoice: Invoice) -> None:
    browser = Client()
    path = PayLink.url_of(invoice).partition("127.0.0.1:8000")[2] or "/pay/x"
    assert "₹1,180.00" in browser.get(path).content.decode()
    answered = browser.post(path)
    assert answered.status_code == 303
    assert answered["Location"].startswith(provider.url)
    assert browser.get(path + "x").status_code == 404


def test_the_mailed_page_says_when_the_provider_keeps_too_many_waiting(
    provider: RunningSimulator, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "upstream", Bulkhead(per_number=1, per_tenant=0, crowded=1, in_all=1))
    answered = Client().post(PayLink.url_of(invoice).partition("127.0.0.1:8000")[2])
    assert answered.status_code == 409
    assert "Too many calls" in answered.content.decode()
    assert not PaymentAttempt.objects.filter(kind="manual").exists()


def test_staff_see_every_tenant_also_while_billing_is_off(
    staff_api: Api, payer: Tenant, invoice: Invoice, settings: Settings
) -> None:
    run(ist(2026, 12, 9))
    settings.BILLING_ENABLED = False
    body = staff_api.get("/v1/admin/billing").json()
    assert body == {
        "billing_enabled": False,
        "tenants": [
            {
                "tenant_id": str(payer.id),
                "name": "Asha Traders",
                "billing_status": "past_due",
                "past_due_since": "2026-12-08T18:29:59.000Z",
                "last_snapshot": {"period": "2026-11", "active_numbers": 3, "total_paise": 118000},
                "open_invoices": 1,
            }
        ],
    }


def test_staff_see_the_longest_past_due_first_then_by_name(staff_api: Api) -> None:
    for name, status, since in (
        ("Zinc", "active", None),
        ("Amber", "exempt", None),
        ("Late", "past_due", ist(2026, 12, 8)),
        ("Later", "past_due", ist(2026, 12, 9)),
        ("Nobody", None, None),
    ):
        Tenant.objects.create(name=name, status="active", billing_status=status, past_due_since=since)
    rows = staff_api.get("/v1/admin/billing").json()["tenants"]
    assert [row["name"] for row in rows] == ["Late", "Later", "Amber", "Zinc"]
    assert [row["last_snapshot"] for row in rows] == [None] * 4


def test_staff_see_the_newest_month_and_what_is_unpaid(staff_api: Api, invoice: Invoice) -> None:
    amounts = {"subtotal_paise": 1, "tax_paise": 2, "total_paise": 3}
    for period in ("2027-01", "2026-12"):
        BillingSnapshot.objects.create(
            tenant=invoice.tenant,
            period=period,
            active_numbers=0,
            numbers=[],
            terms={},
            taken_at=now(),
            **amounts,
        )
    for status in Invoice.Status.values:
        Invoice.objects.update(status=status)
        [row] = staff_api.get("/v1/admin/billing").json()["tenants"]
        assert row["open_invoices"] == (status in {"open", "processing", "failed"}), status
    assert row["last_snapshot"] == {"period": "2027-01", "active_numbers": 0, "total_paise": 3}
