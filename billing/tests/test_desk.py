"""Staff controls: a second person above a daily amount, and months that stay closed."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from billing import accounting, gstr1, ledger
from billing.admin import second_person
from billing.admin.money_acts import carry_out
from billing.billing_run import run
from billing.invoices import credit_notes, issuing
from billing.models import (
    BillingProfile,
    BillingSnapshot,
    ClosedMonth,
    CreditNote,
    Invoice,
    LedgerEntry,
    StaffAct,
)
from billing.payments import bank_transfers
from billing.pricing.periods import Period
from billing.tests.conftest import FIRST_OF_DECEMBER, NOVEMBER, ist, only_invoice
from gateway.api.errors import Conflict
from gateway.clock import now
from gateway.ids import uuid7
from tenants.models import AuditEntry, Tenant, User
from tenants.staff.roles import FINANCE, SUPPORT
from tests.browsers import logged_in
from tests.threads import at_once

pytestmark = pytest.mark.django_db

SUBMITTED = {"_form_submitted": "on"}
DECEMBER = Period(2026, 12)


def person(name: str, group: str = FINANCE) -> Client:
    """A browser of a staff member."""
    user = User.objects.create_user(f"{name}@gateway.example", "a long enough password", is_staff=True)
    user.groups.add(Group.objects.get(name=group))
    return logged_in(user)


def credit(browser: Client, invoice: Invoice, rupees: str) -> Any:
    url = reverse("admin:billing_invoice_credit", args=[invoice.pk])
    return browser.post(url, {**SUBMITTED, "amount": rupees, "reason": "Outage"})


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of a dialog: its id, and that it was submitted."""
    found = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
    return {name: found[name] for name in ("act_id", "_form_submitted")}


def opened(browser: Client, invoice: Invoice) -> tuple[str, dict[str, str]]:
    """The address and the fields of an opened dialog for a credit note, without the amount."""
    url = reverse("admin:billing_invoice_credit", args=[invoice.pk])
    return url, hidden(browser.get(url).content.decode()) | {"reason": "Outage"}


def credit_sixty(tenant: Tenant, target_id: UUID, at: datetime) -> None:
    """Credit ₹60 of a document, always as the same staff member."""
    second_person.act(
        lambda _: "done",
        act="credit",
        target_id=target_id,
        tenant_id=tenant.id,
        values={},
        amount_paise=6_000,
        at=at,
        actor_user_id=1,
    )


def decide(browser: Client, how: str = "approve") -> Any:
    act = StaffAct.objects.latest("id")
    return browser.post(reverse(f"admin:billing_staffact_{how}", args=[act.pk]), SUBMITTED)


class TestSecondPerson:
    @pytest.fixture(autouse=True)
    def _limit(self, settings: Settings) -> None:
        settings.BILLING_SECOND_PERSON_RUPEES = 100

    def test_a_big_act_waits_for_another_person(self, invoice: Invoice) -> None:
        first, second, watcher = person("first"), person("second"), person("watcher", SUPPORT)
        assert credit(first, invoice, "100.01").status_code == 302
        assert not CreditNote.objects.exists()
        assert decide(watcher).status_code == 403
        assert b"Another person has to approve" in decide(first).content
        assert not CreditNote.objects.exists()
        assert decide(second).status_code == 302
        note = CreditNote.objects.get()
        assert (note.total_paise, note.issued_by) == (
            10_001,
            User.objects.get(email="first@gateway.example").pk,
        )
        assert b"already decided" in decide(second).content
        assert CreditNote.objects.count() == 1
        found = AuditEntry.objects.filter(action__in=("billing.ask", "billing.approve")).order_by("id")
        assert [(entry.action, entry.details["amount_paise"]) for entry in found] == [
            ("billing.ask", 10_001),
            ("billing.approve", 10_001),
        ]

    def test_many_small_acts_of_a_day_are_a_big_one(self, invoice: Invoice, other_tenant: Tenant) -> None:
        first, second = person("first"), person("second")
        for rupees in ("60", "40", "0.01"):
            credit(first, invoice, rupees)
        assert CreditNote.objects.count() == 2
        credit(second, invoice, "100")
        assert CreditNote.objects.count() == 3, "another person has an amount of its own"
        StaffAct.objects.update(asked_at=StaffAct.objects.latest("id").asked_at - timedelta(days=1))
        credit(first, invoice, "100")
        assert CreditNote.objects.count() == 4, "so has another day"
        StaffAct.objects.update(tenant=other_tenant)
        credit(first, invoice, "100")
        assert CreditNote.objects.count() == 5, "and another business"

    def test_acts_on_different_documents_of_a_business_count_together(self, invoice: Invoice) -> None:
        for waits in (False, True):
            credit_sixty(invoice.tenant, uuid7(), FIRST_OF_DECEMBER)
            assert StaffAct.objects.filter(status="waiting").exists() is waits

    @pytest.mark.parametrize(
        ("rupees", "said"), [("100", "This was already done"), ("100.01", "It waits under Staff acts")]
    )
    def test_a_dialog_that_is_submitted_again_acts_once(
        self, invoice: Invoice, rupees: str, said: str
    ) -> None:
        """For example because its answer was lost."""
        browser = person("first")
        url, sent = opened(browser, invoice)
        for _ in range(2):
            page = browser.post(url, sent | {"amount": rupees}, follow=True).content.decode()
            assert StaffAct.objects.count() == 1
        assert said in page
        assert b"other values" in browser.post(url, sent | {"amount": "99"}).content
        StaffAct.objects.update(status="begun")
        assert b"may have been done" in browser.post(url, sent | {"amount": rupees}).content
        StaffAct.objects.update(status="declined")
        assert b"was declined" in browser.post(url, sent | {"amount": rupees}).content
        assert CreditNote.objects.count() == (rupees == "100")
        browser.post(url, opened(browser, invoice)[1] | {"amount": "1"})
        assert StaffAct.objects.count() == 2, "another dialog"

    def test_a_dialog_that_was_refused_can_be_corrected(self, invoice: Invoice, settings: Settings) -> None:
        settings.BILLING_SECOND_PERSON_RUPEES = 0
        browser = person("first")
        url, sent = opened(browser, invoice)
        refused = browser.post(url, sent | {"amount": "600"}).content.decode()
        assert "not credited yet" in refused
        assert hidden(refused) == hidden(browser.post(url, sent | {"amount": "600"}).content.decode())
        assert browser.post(url, hidden(refused) | {"amount": "59", "reason": "x"}).status_code == 302
        assert CreditNote.objects.get().total_paise == 5_900

    def test_a_cancelled_registration_counts_from_the_moment_of_the_request(
        self, invoice: Invoice, settings: Settings
    ) -> None:
        registered = now() - timedelta(hours=25)
        Invoice.objects.filter(pk=invoice.pk).update(irn="a" * 64, ack_at=registered)
        url = reverse("admin:billing_invoice_cancel", args=[invoice.pk])
        person("first").post(url, {**SUBMITTED, "reason": "Wrong"})
        assert b"last 24 hours" in decide(second := person("second")).content
        StaffAct.objects.update(asked_at=registered + timedelta(hours=23))
        assert decide(second).status_code == 302
        found = only_invoice(invoice.tenant)
        assert (found.irn_cancelled_at, found.status) == (registered + timedelta(hours=23), "void")

    @pytest.mark.parametrize(
        ("first", "later", "waits"),
        [
            (ist(2026, 12, 2, 23, 59), ist(2026, 12, 3), False),
            (ist(2026, 12, 3), ist(2026, 12, 3, 23, 59), True),
        ],
    )
    def test_a_day_is_indias(self, payer: Tenant, first: datetime, later: datetime, waits: bool) -> None:
        for at in (first, later):
            credit_sixty(payer, payer.id, at.astimezone(UTC))
        assert StaffAct.objects.filter(status="waiting").exists() is waits

    def test_what_another_person_approved_leaves_ones_own_amount(self, invoice: Invoice) -> None:
        first = person("first")
        credit(first, invoice, "150")
        decide(person("second"))
        credit(first, invoice, "100")
        assert [act.status for act in StaffAct.objects.order_by("asked_at")] == ["done", "done"]

    def test_what_has_no_amount_counts_the_whole_invoice(self, invoice: Invoice) -> None:
        url = reverse("admin:billing_invoice_write_off", args=[invoice.pk])
        person("first").post(url, {**SUBMITTED, "reason": "Closed"})
        assert only_invoice(invoice.tenant).amount_due_paise == 59_000
        decide(person("second"), "decline")
        assert StaffAct.objects.get().status == "declined"
        assert only_invoice(invoice.tenant).amount_due_paise == 59_000

    def test_a_refused_act_leaves_nothing_or_waits_again(self, invoice: Invoice) -> None:
        first, second = person("first"), person("second")
        assert b"not credited yet" in credit(first, invoice, "0.001").content or not StaffAct.objects.exists()
        credit(first, invoice, "600")
        assert b"not credited yet" in decide(second).content
        act = StaffAct.objects.get()
        assert (act.status, act.decided_by, act.decided_at) == ("waiting", None, None)
        assert not AuditEntry.objects.filter(action="billing.approve").exists(), "nothing was done"
        decide(first, "decline")
        assert StaffAct.objects.get().status == "declined", "who asked may take it back"

    @pytest.mark.django_db(transaction=True)
    def test_two_who_approve_at_once_do_it_once(self, invoice: Invoice) -> None:
        act = second_person.act(
            carry_out,
            act="credit",
            target_id=invoice.pk,
            tenant_id=invoice.tenant_id,
            values={"total_paise": 20_000, "reason": "x"},
            amount_paise=20_000,
            at=FIRST_OF_DECEMBER,
            actor_user_id=1,
        )
        assert "second person" in act
        key = StaffAct.objects.get().pk

        def approve(person: int) -> None:
            second_person.approve(key, carry_out, at=FIRST_OF_DECEMBER, actor_user_id=person)

        errors = at_once(lambda: approve(2), lambda: approve(3), lambda: approve(4))
        assert [type(error) for error in errors] == [Conflict, Conflict]
        assert CreditNote.objects.get().total_paise == 20_000

    @pytest.mark.django_db(transaction=True)
    def test_acts_at_once_count_together(self, invoice: Invoice) -> None:
        def credit_once() -> None:
            second_person.act(
                carry_out,
                act="credit",
                target_id=invoice.pk,
                tenant_id=invoice.tenant_id,
                values={"total_paise": 6_000, "reason": "x"},
                amount_paise=6_000,
                at=FIRST_OF_DECEMBER,
                actor_user_id=1,
            )

        assert at_once(credit_once, credit_once, credit_once) == []
        assert CreditNote.objects.count() == 1
        assert StaffAct.objects.filter(status="waiting").count() == 2

    def test_without_a_limit_nobody_waits(self, invoice: Invoice, settings: Settings) -> None:
        settings.BILLING_SECOND_PERSON_RUPEES = 0
        credit(person("first"), invoice, "590")
        assert CreditNote.objects.count() == 1
        assert StaffAct.objects.get().status == "done"


class TestClosedMonths:
    def test_what_comes_later_belongs_to_the_next_month(self, payer: Tenant, invoice: Invoice) -> None:
        january = ist(2027, 1, 2)
        run(ist(2027, 1, 1, 0, 15))
        before = accounting.months(DECEMBER, 1), gstr1.of(DECEMBER)
        ledger.close_month(DECEMBER, at=january, actor_user_id=7)
        late = ist(2026, 12, 30)
        bank_transfers.record(invoice_id=invoice.id, amount_paise=59_000, reference="U1", at=late)
        note = credit_notes.issue(invoice_id=invoice.id, total_paise=100, reason="x", at=late)
        assert (accounting.months(DECEMBER, 1), gstr1.of(DECEMBER)) == before
        assert note.issued_at == DECEMBER.end
        moved = LedgerEntry.objects.filter(act__in=("transfer", "credit"))
        assert {entry.at for entry in moved} == {DECEMBER.end}
        assert ledger.open_paise(invoice) == 0
        assert AuditEntry.objects.get(action="billing.close").actor_user_id == 7

    def test_a_closed_march_dates_into_the_new_years_series(self, invoice: Invoice) -> None:
        run(ist(2027, 4, 1, 0, 15))
        ledger.close_month(Period(2027, 3), at=ist(2027, 4, 2))
        at = ist(2027, 3, 31, 23)
        assert (
            credit_notes.issue(invoice_id=invoice.id, total_paise=1, reason="x", at=at).number
            == "WGCN/2728/000001"
        )

    def test_an_invoice_that_is_dated_after_a_closed_march_names_the_undertaking_of_its_year(
        self, invoice: Invoice, settings: Settings
    ) -> None:
        settings.BILLING_LUT_NUMBERS = {"2627": "AD2627"}
        run(ist(2027, 4, 1, 0, 15))
        ledger.close_month(Period(2027, 3), at=ist(2027, 4, 2))
        BillingProfile.objects.update(country="SG")
        new = issuing.replace(invoice_id=invoice.id, reason="Abroad", at=ist(2027, 3, 31, 23))
        assert (new.number, new.issued_at) == ("WG/2728/000002", ist(2027, 4, 1, 0, 15))
        assert new.igst_paise == 9_000, "this year has no letter"
        assert "AD2627" not in new.endorsement

    def test_earlier_months_that_close_too_are_counted(
        self, payer: Tenant, invoice: Invoice, other_tenant: Tenant, settings: Settings
    ) -> None:
        settings.BILLING_FIRST_PERIOD = "2026-11"
        Tenant.objects.filter(pk=other_tenant.pk).update(
            billing_status="active", created_at=ist(2026, 10, 1), trial_ends_at=None
        )
        for tenant in (payer, other_tenant):
            BillingSnapshot.objects.create(
                tenant=tenant,
                period=str(DECEMBER),
                active_numbers=0,
                numbers=[],
                terms={},
                subtotal_paise=0,
                tax_paise=0,
                total_paise=0,
                taken_at=ist(2027, 1, 1),
            )
        with pytest.raises(Conflict, match="not counted"):
            ledger.close_month(DECEMBER, at=ist(2027, 1, 2))

    def test_which_months_can_be_closed(self, invoice: Invoice) -> None:
        with pytest.raises(Conflict, match="not over"):
            ledger.close_month(NOVEMBER, at=ist(2026, 11, 30, 23))
        with pytest.raises(Conflict, match="not counted"):
            ledger.close_month(DECEMBER, at=ist(2027, 1, 1, 1))
        ledger.close_month(NOVEMBER, at=ist(2026, 12, 1, 1))
        for month in (NOVEMBER, Period(2026, 10)):
            with pytest.raises(Conflict, match="already closed"):
                ledger.close_month(month, at=ist(2026, 12, 2))
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM billing_closedmonth")

    def test_finance_closes_on_the_page_of_accounting(
        self, invoice: Invoice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(ist(2027, 1, 1, 0, 15))
        monkeypatch.setattr("billing.admin.invoices.now", lambda: ist(2027, 1, 2))
        url = reverse("admin:billing_invoice_close", args=["2026-11"])
        assert person("watcher", SUPPORT).post(url).status_code == 403
        desk = person("first")
        desk.get(url)
        assert not ClosedMonth.objects.exists()
        assert desk.post(url).status_code == 302
        assert ClosedMonth.objects.get().period == "2026-11"
        page = desk.get(reverse("admin:billing_invoice_accounting")).content.decode()
        assert page.count("Close December 2026</button>") == 1
        assert "Close November 2026" not in page
        again = desk.post(url, follow=True).content.decode()
        assert "already closed" in again

    @pytest.mark.django_db(transaction=True)
    def test_an_act_that_races_the_closing_is_in_no_closed_month(
        self, payer: Tenant, invoice: Invoice
    ) -> None:
        """Either the figures at the closing include the act, or the act is dated in the next month."""
        run(ist(2027, 1, 1, 0, 15))
        late, figures = ist(2026, 12, 30), []

        def close() -> None:
            with transaction.atomic():
                ledger.close_month(DECEMBER, at=ist(2027, 1, 2))
                figures.append(json.dumps(gstr1.of(DECEMBER)))
                figures.append(str(accounting.months(DECEMBER, 1)))

        def note(paise: int) -> None:
            credit_notes.issue(invoice_id=invoice.id, total_paise=paise, reason="x", at=late)

        errors = at_once(close, lambda: note(100), lambda: note(200), lambda: note(300))
        assert errors == []
        assert figures == [json.dumps(gstr1.of(DECEMBER)), str(accounting.months(DECEMBER, 1))]
