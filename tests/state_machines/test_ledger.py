"""Invoices, payments, refunds, credits and write-offs in any order: no step creates or loses money."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F, Sum
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from pytest_django import Settings

from billing import ledger, usage
from billing.invoices import credit_notes, issuing
from billing.models import Invoice, LedgerPosting, PaymentAttempt
from billing.payments import attempts, bank_transfers
from billing.payments.provider import Payment
from billing.tests.conftest import assert_balanced, connected, ist
from gateway.api.errors import InvalidRequest
from tenants.models import Tenant
from tests.state_machines.machine import PICKED, Machine, one, run_machine, unless_away

MONTHLY = 59_000
"""The amount of each invoice in paise: one phone number for a month, with 18 % GST."""
PAISE = st.sampled_from([1, 40, 20_000, 58_950, MONTHLY, 2 * MONTHLY + 7])


class Books(Machine):
    """Received money that is not refunded pays invoices or stays in the tenant's balance. The balance pays due
    invoices.
    """

    MOST_STATEMENTS = 40

    def __init__(self) -> None:
        super().__init__()
        Tenant.objects.filter(pk=self.tenant.pk).update(
            billing_status="active",
            billing_email="bills@shop.example",
            trial_ends_at=ist(2026, 11, 1),
            created_at=ist(2026, 10, 1),
        )
        connected(self.tenant, "1", (ist(2026, 11, 3), None))
        self.at = ist(2026, 12, 1, 0, 15)
        self.invoices: list[UUID] = []
        self.credited: defaultdict[UUID, int] = defaultdict(int)
        self.transfers: dict[UUID, int] = {}
        """The paise of each transfer, minus refunds."""
        self.links: dict[UUID, UUID] = {}
        """The invoice of each payment link."""
        self.paid_by_link: defaultdict[UUID, int] = defaultdict(int)
        self.refunded: defaultdict[UUID, int] = defaultdict(int)
        self.in_flight: set[UUID] = set()
        self.references = 0
        self.issue()

    @precondition(lambda self: len(self.invoices) < 4)
    @rule()
    @unless_away
    def issue(self) -> None:
        with self.database():
            usage.take_snapshots(self.at)
            issuing.issue_due(self.at)
        self.invoices.append(Invoice.objects.latest("id").pk)
        self.at = ist(2027, len(self.invoices), 1, 0, 15)

    def free(self) -> Iterator[UUID]:
        """The invoices without a payment in flight. The others cannot be corrected."""
        waited_for = {self.links[link] for link in self.in_flight}
        return (invoice for invoice in self.invoices if invoice not in waited_for)

    @precondition(lambda self: any(self.free()))
    @rule(picked=PICKED, paise=PAISE)
    @unless_away
    def transfer(self, picked: int, paise: int) -> None:
        self.references += 1
        arguments: dict[str, Any] = {"amount_paise": paise, "reference": f"UTR{self.references}"}
        with self.database():
            made = bank_transfers.record(invoice_id=one(self.free(), picked), at=self.at, **arguments)
        self.transfers[made.pk] = paise

    @precondition(lambda self: self.transfers)
    @rule(picked=PICKED, paise=PAISE)
    @unless_away
    def refund_transfer(self, picked: int, paise: int) -> None:
        transfer = one(self.transfers, picked)
        arguments: dict[str, Any] = {"amount_paise": paise, "reference": "UTR", "at": self.at}
        if paise > min(self.transfers[transfer], ledger.balance_paise(self.tenant.pk)):
            with pytest.raises(InvalidRequest), self.database():
                bank_transfers.give_back(attempt_id=transfer, **arguments)
            return
        with self.database():
            bank_transfers.give_back(attempt_id=transfer, **arguments)
        self.transfers[transfer] -= paise

    @precondition(lambda self: any(self.free()))
    @rule(picked=PICKED, paise=PAISE)
    @unless_away
    def credit(self, picked: int, paise: int) -> None:
        invoice = one(self.free(), picked)
        arguments: dict[str, Any] = {"total_paise": paise, "reason": "Outage", "at": self.at}
        if paise > MONTHLY - self.credited[invoice]:
            with pytest.raises(InvalidRequest), self.database():
                credit_notes.issue(invoice_id=invoice, **arguments)
            return
        with self.database():
            credit_notes.issue(invoice_id=invoice, **arguments)
        self.credited[invoice] += paise

    @precondition(lambda self: any(ledger.open_paise(Invoice(pk=invoice)) for invoice in self.free()))
    @rule(picked=PICKED)
    @unless_away
    def write_off(self, picked: int) -> None:
        due = [invoice for invoice in self.free() if ledger.open_paise(Invoice(pk=invoice))]
        with self.database():
            bank_transfers.write_off(invoice_id=one(due, picked), reason="Closed", at=self.at)

    @precondition(lambda self: any(self.free()))
    @rule(picked=PICKED)
    @unless_away
    def open_link(self, picked: int) -> None:
        invoice = Invoice.objects.get(pk=one(self.free(), picked))
        if invoice.amount_due_paise:
            with self.database():
                made = attempts.insert(invoice, PaymentAttempt.Kind.LINK, self.at)
            self.links[made.pk] = invoice.pk
            self.in_flight.add(made.pk)

    @precondition(lambda self: self.links)
    @rule(picked=PICKED, paise=PAISE, refunded=PAISE)
    @unless_away
    def capture(self, picked: int, paise: int, refunded: int) -> None:
        """Apply a provider's report on a link. The report may be outdated, and a failed link may still be paid."""
        link = one(self.links, picked)
        seen = Payment("pay_1", "captured", paise, min(refunded, paise))
        with self.database():
            attempts.apply_payments(attempt_id=link, payments=[seen], at=self.at)
        self.in_flight.discard(link)
        self.paid_by_link[link] = max(self.paid_by_link[link], paise)
        self.refunded[link] = max(self.refunded[link], seen.refunded_paise)

    @precondition(lambda self: self.links)
    @rule(picked=PICKED)
    @unless_away
    def fail(self, picked: int) -> None:
        link = one(self.links, picked)
        with self.database():
            attempts.fail(attempt_id=link, error=None, at=self.at)
        self.in_flight.discard(link)

    @invariant()
    def money_is_neither_made_nor_lost(self) -> None:
        assert_balanced()
        invoices = list(Invoice.objects.all())
        came = sum(self.transfers.values()) + sum(self.paid_by_link.values()) - sum(self.refunded.values())
        given_up = LedgerPosting.objects.filter(account="write_off").aggregate(
            sum=Sum("amount_paise", default=0)
        )["sum"]
        balance = ledger.balance_paise(self.tenant.pk)
        recorded = PaymentAttempt.objects.aggregate(
            sum=Sum(F("captured_paise") - F("refunded_paise"), default=0)
        )
        assert recorded["sum"] == came
        assert {row.pk: row.credited_paise for row in invoices} == {
            pk: self.credited[pk] for pk in self.invoices
        }
        assert came + given_up == sum(row.amount_paid_paise for row in invoices) + balance
        assert balance >= 0
        assert given_up >= 0
        waited_for = {self.links[link] for link in self.in_flight}
        for row in invoices:
            assert row.amount_due_paise >= 0
            assert row.amount_paid_paise + row.amount_due_paise == MONTHLY - self.credited[row.pk]
            assert (row.amount_due_paise == 0) == (row.status in ("paid", "void"))
            assert balance == 0 or row.amount_due_paise == 0 or row.pk in waited_for


@pytest.mark.django_db
def test_any_order_of_steps_ends_as_the_model_says(settings: Settings) -> None:
    settings.BILLING_ENABLED = True
    run_machine(Books, runs=10)
