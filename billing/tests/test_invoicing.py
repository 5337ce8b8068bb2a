"""Usage, snapshots and invoices: counted numbers, unchangeable documents, and document numbers without gaps."""

from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest
from django.db import DatabaseError, connection, transaction
from pytest_django import Settings

from billing import buyers, ledger, usage
from billing.billing_run import run
from billing.invoices import issuing
from billing.models import BillingProfile, BillingSnapshot, Invoice, InvoiceLine, InvoiceSeries
from billing.tests.conftest import FIRST_OF_DECEMBER, NOVEMBER, PROFILE, connected, ist, only_invoice
from billing.usage import active_numbers
from tenants.models import OutboundMail, Tenant
from tests.threads import at_once

pytestmark = pytest.mark.django_db


def test_a_number_is_active_from_a_day_of_connection_in_the_month(payer: Tenant) -> None:
    day = timedelta(hours=24)
    start, end = NOVEMBER.start, NOVEMBER.end
    connected(payer, "1", (ist(2026, 11, 5), ist(2026, 11, 6)))
    connected(payer, "2", (ist(2026, 11, 5), ist(2026, 11, 6) - timedelta(microseconds=1)))
    connected(payer, "3", (start - 5 * day, start + day / 2), (end - day / 2, None))
    connected(payer, "4", (start - 5 * day, start + day / 2), (end, None))
    connected(payer, "5", (start - day, None))
    found = active_numbers(tenant_id=payer.id, start=start, end=end)
    assert [number.phone_number_id[-1] for number in found] == ["1", "3", "5"]
    assert found[0].connected_seconds == 86400
    assert found[2].connected_seconds == 30 * 86400


def test_a_number_that_reconnects_is_active_since_its_first_connection(payer: Tenant) -> None:
    first = ist(2026, 11, 3)
    connected(payer, "1", (first, ist(2026, 11, 10)), (ist(2026, 11, 20), None))
    (number,) = active_numbers(tenant_id=payer.id, start=ist(2026, 11, 1), end=ist(2026, 12, 1))
    assert number.active_since == first


def test_a_number_that_moves_to_another_account_is_one_number(payer: Tenant) -> None:
    """It gets another id there. During the move it is connected in both accounts, and Meta may write it differently."""
    connected(payer, "2", (ist(2026, 11, 1), ist(2026, 11, 15)))
    moved = connected(payer, "1", (ist(2026, 11, 14), ist(2026, 11, 15, 12)), (ist(2026, 11, 20), None))
    type(moved).objects.filter(pk=moved.pk).update(display_phone_number="+91 980002")
    (number,) = active_numbers(tenant_id=payer.id, start=NOVEMBER.start, end=NOVEMBER.end)
    assert number.phone_number_id == moved.phone_number_id
    assert number.active_since == ist(2026, 11, 1)
    assert [(span["from"], span["to"]) for span in number.intervals] == [
        (ist(2026, 11, 1), ist(2026, 11, 15, 12)),
        (ist(2026, 11, 20), NOVEMBER.end),
    ]
    assert number.connected_seconds == (14 * 24 + 12 + 11 * 24) * 3600


def test_numbers_whose_digits_are_not_known_are_counted_by_their_ids(payer: Tenant) -> None:
    for name in ("1", "2"):
        number = connected(payer, name, (ist(2026, 11, 3), None))
        type(number).objects.filter(pk=number.pk).update(display_phone_number="")
    assert len(active_numbers(tenant_id=payer.id, start=NOVEMBER.start, end=NOVEMBER.end)) == 2


def test_test_numbers_and_other_tenants_numbers_are_not_counted(payer: Tenant, other_tenant: Tenant) -> None:
    number = connected(payer, "1", (NOVEMBER.start, None))
    type(number).objects.filter(pk=number.pk).update(environment="test")
    connected(other_tenant, "2", (NOVEMBER.start, None))
    assert active_numbers(tenant_id=payer.id, start=NOVEMBER.start, end=NOVEMBER.end) == []


def test_the_run_fixes_the_month_and_issues_its_invoice_once(payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    for name in ("1", "2", "3"):
        connected(payer, name, (ist(2026, 11, 3), None))
    run(ist(2026, 12, 1, 0, 5))
    assert BillingSnapshot.objects.count() == 0, "ten minutes are left to transactions of the last moment"
    run(FIRST_OF_DECEMBER)
    run(FIRST_OF_DECEMBER + timedelta(minutes=10))
    snapshot = BillingSnapshot.objects.get()
    invoice = only_invoice(payer)
    assert (snapshot.period, snapshot.active_numbers, snapshot.total_paise) == ("2026-11", 3, 118_000)
    assert (invoice.number, invoice.total_paise, invoice.igst_paise) == ("WG/2627/000001", 118_000, 18_000)
    assert invoice.place_of_supply == "29-Karnataka"
    assert invoice.due_at == ist(2026, 12, 9) - timedelta(seconds=1), "the whole of the day is left to pay"
    assert invoice.total_in_words == "Rupees one thousand one hundred and eighty only"
    assert OutboundMail.objects.filter(to="bills@shop.example").count() == 1


def test_an_invalid_tax_id_delays_the_invoice_and_not_the_month(payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes=PROFILE)
    connected(payer, "1", (ist(2026, 11, 3), None))
    BillingProfile.objects.update(tax_id="29AAACI1681G1Z0")
    run(FIRST_OF_DECEMBER)
    assert BillingSnapshot.objects.get().total_paise == 59_000
    assert not Invoice.objects.exists()


def test_within_the_sellers_state_the_tax_is_halved(payer: Tenant) -> None:
    buyers.change(tenant_id=payer.id, changes={"state_code": "27"})
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    invoice = only_invoice(payer)
    assert (invoice.cgst_paise, invoice.sgst_paise, invoice.igst_paise) == (4500, 4500, 0)
    assert invoice.supply_type == "intra_state"


@pytest.mark.parametrize(
    "values",
    [
        {"billing_status": "trialing", "trial_ends_at": ist(2027, 1, 1)},
        {"billing_status": "exempt"},
        {"billing_status": None},
        {"sandbox": True},
        {"trial_ends_at": ist(2026, 12, 1)},
    ],
)
def test_who_is_not_billed(payer: Tenant, values: dict[str, object]) -> None:
    Tenant.objects.filter(pk=payer.pk).update(**values)
    connected(payer, "1", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    assert not BillingSnapshot.objects.exists()


def test_a_month_without_numbers_has_a_snapshot_and_no_invoice(payer: Tenant) -> None:
    run(FIRST_OF_DECEMBER)
    assert BillingSnapshot.objects.get().total_paise == 0
    assert not Invoice.objects.exists()


def test_missed_months_are_caught_up_from_the_first_period_and_never_before(
    payer: Tenant, settings: Settings
) -> None:
    Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=ist(2026, 1, 1), created_at=ist(2025, 1, 1))
    connected(payer, "1", (ist(2026, 1, 3), None))
    settings.BILLING_FIRST_PERIOD = "2026-09"
    run(FIRST_OF_DECEMBER)
    assert list(Invoice.objects.order_by("number").values_list("period", flat=True)) == [
        "2026-09",
        "2026-10",
        "2026-11",
    ]


def test_a_trial_that_ends_becomes_active(payer: Tenant) -> None:
    Tenant.objects.filter(pk=payer.pk).update(billing_status="trialing", trial_ends_at=ist(2026, 12, 1))
    run(FIRST_OF_DECEMBER)
    payer.refresh_from_db()
    assert payer.billing_status == "active"


@pytest.fixture
def invoice(payer: Tenant) -> Invoice:
    connected(payer, "1", (ist(2026, 11, 3), None))
    connected(payer, "2", (ist(2026, 11, 3), None))
    run(FIRST_OF_DECEMBER)
    return only_invoice(payer)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_invoice SET total_paise = 1, subtotal_paise = 1 - igst_paise - cgst_paise - sgst_paise",
        "UPDATE billing_invoice SET buyer = '{}'",
        "DELETE FROM billing_invoice",
        "UPDATE billing_invoiceline SET description = 'x'",
        "DELETE FROM billing_invoiceline",
        "UPDATE billing_billingsnapshot SET active_numbers = 9",
        "DELETE FROM billing_billingsnapshot",
        "INSERT INTO billing_invoiceline (invoice_id, description, sac, quantity, unit_paise, amount_paise)"
        " SELECT id, 'More', '998315', 1, 1, 1 FROM billing_invoice",
    ],
)
def test_what_was_issued_cannot_be_changed_even_by_sql(invoice: Invoice, statement: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_how_it_is_paid_may_change(invoice: Invoice) -> None:
    invoice.status, invoice.amount_paid_paise, invoice.irn = "paid", invoice.total_paise, "a" * 64
    invoice.save()
    assert sum(line.amount_paise for line in InvoiceLine.objects.all()) == invoice.subtotal_paise


@pytest.mark.django_db(transaction=True)
def test_numbers_have_no_gaps_when_many_issue_at_once_and_some_fail() -> None:
    taken: list[str] = []

    def issue(index: int) -> None:
        for round_ in range(5):
            with suppress(RuntimeError):
                with transaction.atomic():
                    number, *_ = ledger.take_number(model=Invoice, prefix="WG", at=FIRST_OF_DECEMBER)
                    if (index + round_) % 3 == 0:
                        raise RuntimeError
                taken.append(number)

    assert at_once(*(partial(issue, index) for index in range(6))) == []
    assert sorted(taken) == [f"WG/2627/{serial:06d}" for serial in range(1, 21)]
    assert InvoiceSeries.objects.get().next_serial == 21


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_issue_one_invoice_each(payer: Tenant, other_tenant: Tenant) -> None:
    Tenant.objects.filter(pk=other_tenant.pk).update(billing_status="active", created_at=ist(2026, 10, 1))
    for tenant in (payer, other_tenant):
        connected(tenant, "1", (ist(2026, 11, 3), None))

    def work() -> None:
        usage.take_snapshots(FIRST_OF_DECEMBER)
        issuing.issue_due(FIRST_OF_DECEMBER)

    assert at_once(*[work] * 4) == []
    assert sorted(Invoice.objects.values_list("number", flat=True)) == ["WG/2627/000001", "WG/2627/000002"]


def test_a_run_for_a_past_day_keeps_the_dates_of_a_series_in_order(payer: Tenant, settings: Settings) -> None:
    """With any `--as-of`, a document with a higher number in its series never has an earlier date."""
    settings.BILLING_FIRST_PERIOD = "2026-10"
    Tenant.objects.filter(pk=payer.pk).update(trial_ends_at=ist(2026, 10, 1))
    connected(payer, "1", (ist(2026, 10, 3), None))
    run(ist(2026, 12, 1, 0, 15))
    late = Tenant.objects.create(
        name="late", billing_status="active", trial_ends_at=ist(2026, 10, 1), created_at=ist(2026, 10, 1)
    )
    connected(late, "1", (ist(2026, 10, 3), None))
    run(ist(2026, 11, 1, 9, 30))
    issued = Invoice.objects.order_by("number")
    assert len(issued) == 3
    dates = [invoice.issued_at for invoice in issued]
    assert dates == sorted(dates)
    assert issued[2].due_at > issued[2].issued_at == issued[1].issued_at
