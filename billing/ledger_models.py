"""Ledger tables: entries with postings that sum to zero, closed months, and what staff do with money. Rows and their
invariants only.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from billing.pricing.money import rupees
from gateway.ids import uuid7
from tenants.models import Tenant


class LedgerEntry(models.Model):
    """One act, booked in its transaction. Written by `ledger.py`, never changed; `key` makes it happen once."""

    class Act(models.TextChoices):
        INVOICE = "invoice", "Invoice issued"
        CREDIT = "credit", "Credit note issued"
        PAYMENT = "payment", "Payment collected"
        REFUND = "refund", "Payment paid back"
        TRANSFER = "transfer", "Bank transfer received"
        RETURN = "return", "Bank transfer paid back"
        TDS = "tds", "Tax deducted at source"
        CERTIFICATE = "certificate", "TDS certificate received"
        SET_OFF = "set_off", "Balance set off"
        WRITE_OFF = "write_off", "Written off"
        CHECK = "check", "Mandate approved"
        SETTLEMENT = "settlement", "Provider settled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="ledger_entries"
    )
    act = models.CharField(max_length=12, choices=Act.choices)
    key = models.CharField(max_length=100, unique=True)
    """The act by its own name, e.g. `invoice WG/2627/000001`: a repetition books nothing."""
    text = models.CharField(max_length=500, blank=True)
    at = models.DateTimeField()
    """When it happened: the day that it belongs to."""

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant", "at"], name="ledger_by_tenant"),
            models.Index(fields=["at"], name="ledger_by_day"),
        ]

    def __str__(self) -> str:
        return self.key


class LedgerPosting(models.Model):
    """A debit (positive) or credit (negative) of one account, in paise. A trigger holds the sum of an entry at zero."""

    class Account(models.TextChoices):
        RECEIVABLE = "receivable", "Receivable"
        BALANCE = "balance", "Customer balance"
        TDS = "tds", "TDS receivable"
        TDS_CREDIT = "tds_credit", "TDS with certificate"
        BANK = "bank"
        CLEARING = "clearing", "Provider clearing"
        FEES = "fees", "Provider fees"
        FEE_GST = "fee_gst", "GST on provider fees"
        CHECKS = "checks", "Mandate checks"
        SALES = "sales"
        GST = "gst", "GST payable"
        WRITE_OFF = "write_off", "Write-off"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    entry = models.ForeignKey(LedgerEntry, on_delete=models.PROTECT, related_name="postings")
    account = models.CharField(max_length=10, choices=Account.choices)
    amount_paise = models.BigIntegerField()
    invoice = models.ForeignKey(
        "billing.Invoice", null=True, blank=True, on_delete=models.PROTECT, related_name="postings"
    )
    """Of a receivable and of a write-off: the invoice that it is for."""

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount_paise=0), name="posting_is_something"),
            models.CheckConstraint(
                condition=~Q(account="receivable") | Q(invoice__isnull=False), name="receivable_has_invoice"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["account"], name="posting_by_account")]

    def __str__(self) -> str:
        return f"{self.account} {self.amount_paise}"


class SettledItem(models.Model):
    """A payment or refund that the provider settled, by its own books. Written by `payments/settlements.py`."""

    entity_id = models.CharField(max_length=64, primary_key=True)
    settlement_id = models.CharField(max_length=64)
    utr = models.CharField("bank reference", max_length=64, blank=True)
    type = models.CharField(max_length=12)
    amount_paise = models.BigIntegerField()
    fee_paise = models.BigIntegerField()
    """With the tax on it."""
    tax_paise = models.BigIntegerField()
    net_paise = models.BigIntegerField()
    """What reached the bank for it, negative for a refund."""
    settled_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["settlement_id"], name="settled_by_settlement"),
            models.Index(fields=["settled_at"], name="settled_by_day"),
        ]

    def __str__(self) -> str:
        return self.entity_id


class ClosedMonth(models.Model):
    """A month in which nothing is booked and no document is dated any more. Written by `closing.py`, never changed.

    A trigger dates an entry of a closed month to the first moment after it.
    """

    period = models.CharField(max_length=7, primary_key=True)
    ends_at = models.DateTimeField()
    closed_at = models.DateTimeField()
    closed_by = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return self.period


class StaffAct(models.Model):
    """What a member of the staff does with a business's money; a big one waits for a second person.

    Written by `staff/second_person.py`.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", "Waits for a second person"
        BEGUN = "begun"
        DONE = "done"
        DECLINED = "declined"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="staff_acts")
    act = models.CharField(max_length=20)
    target_id = models.UUIDField()
    values = models.JSONField()
    amount_paise = models.BigIntegerField()
    status = models.CharField(max_length=10, choices=Status.choices)
    asked_by = models.BigIntegerField(null=True)
    asked_at = models.DateTimeField()
    decided_by = models.BigIntegerField(null=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(status="done", decided_by=models.F("asked_by")), name="second_person_is_another"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "asked_at"], name="staff_acts_of_a_day")]

    def __str__(self) -> str:
        return f"{self.act.replace('_', ' ')}, {rupees(self.amount_paise)}"
