"""The table of staff acts with money: for each act the dialog, the flow, and the sentence about its result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from billing.admin import second_person
from billing.admin.fields import RupeesField
from billing.invoices import credit_notes, issuing
from billing.models import Invoice, PaymentAttempt, StaffAct
from billing.payments import bank_transfers, refunds
from billing.pricing.money import rupees
from gateway.clock import now
from gateway.ids import uuid7
from gateway.text_field import TextField
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done


def _text(label: str, *, required: bool = True) -> forms.CharField:
    return forms.CharField(label=label, max_length=64, required=required, widget=UnfoldAdminTextInputWidget)


def _reason(label: str) -> TextField:
    return TextField(label=label, max_length=500, widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}))


class ActForm(DialogForm):
    """A dialog with an id, so that a dialog that is submitted again acts once."""

    act_id = forms.UUIDField(required=False, initial=uuid7, widget=forms.HiddenInput)


class ReasonForm(ActForm):
    reason = _reason("Reason (on the credit note)")


class AmountForm(ActForm):
    amount = RupeesField("Amount in rupees")


class CreditForm(ReasonForm):
    amount = RupeesField("Amount in rupees, with GST")


class TransferForm(AmountForm):
    reference = _text("The bank's reference (UTR)")


class TdsForm(ActForm):
    amount = RupeesField("Amount in rupees", least=0)
    certificate = _text("Certificate number", required=False)


class WriteOffForm(ActForm):
    reason = _reason("Reason")


@dataclass(frozen=True, slots=True)
class MoneyAct:
    """One act. `flow` is called with the row's id (as the argument `target`), the form's values, `at` and
    `actor_user_id`.
    """

    model: type[Invoice] | type[PaymentAttempt]
    permission: str
    title: str
    icon: str
    form: type[ActForm]
    ask: tuple[str, str, str]
    """The dialog's question, its explanation, and the label of the button."""
    flow: Callable[..., Any]
    said: Callable[[Any, dict[str, Any]], str]
    """The sentence about the result, from the flow's return value and the form's values."""
    variant: ActionVariant = ActionVariant.DEFAULT
    amount: str = "amount_paise"
    """The name of the flow's argument for the amount."""
    asked: str = ""
    """The name of the flow's argument for the moment of the request, if the flow has one."""

    @property
    def target(self) -> str:
        """The name of the flow's argument for the row's id."""
        return "invoice_id" if self.model is Invoice else "attempt_id"


def allowed(codename: str) -> Any:
    """Make an admin method that returns whether the staff member has a permission of billing."""

    def has_permission(model_admin: Any, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm(f"billing.{codename}")

    return has_permission


class MoneyActsAdmin:
    """Methods that check the permissions of acts.

    An action names one of these methods. If it named a permission in full, the theme would look up the permission in
    the database, even before the tables exist.
    """

    has_credit_permission = allowed("add_creditnote")
    has_payment_permission = allowed("add_paymentattempt")
    has_refund_permission = allowed("add_refund")
    has_decide_permission = allowed("change_staffact")


_CREDIT, _PAYMENT, _REFUND = "credit", "payment", "refund"
_WARNING = ActionVariant.WARNING

ACTS = {
    "credit": MoneyAct(
        Invoice,
        _CREDIT,
        "Issue credit note",
        "undo",
        CreditForm,
        (
            "Issue a credit note?",
            "It corrects this invoice and cannot be undone. An open payment link is closed first.",
            "Issue",
        ),
        credit_notes.issue,
        lambda note, _: f"Credit note {note.number} is issued.",
        _WARNING,
        "total_paise",
    ),
    "replace": MoneyAct(
        Invoice,
        _CREDIT,
        "Replace",
        "find_replace",
        ReasonForm,
        (
            "Replace this invoice?",
            "For a wrong buyer: correct the billing profile first. Then a credit note for the remaining amount is"
            " issued, and a new invoice for the same month. Payments of the old invoice count for the new one. Not"
            " possible after 30 November following the invoice's financial year, if the GST would be owed twice.",
            "Replace",
        ),
        issuing.replace,
        lambda new, _: f"Invoice {new.number} replaces it.",
        _WARNING,
    ),
    "cancel": MoneyAct(
        Invoice,
        _CREDIT,
        "Cancel registration",
        "cancel",
        ReasonForm,
        (
            "Is the registration cancelled at the portal?",
            "Cancel the IRN at the portal first, within 24 hours. Then the whole invoice is credited here, and neither"
            " document is part of a return.",
            "It is cancelled",
        ),
        credit_notes.cancel,
        lambda note, _: f"Credit note {note.number} cancels the whole invoice.",
        _WARNING,
        asked="cancelled_at",
    ),
    "payment": MoneyAct(
        Invoice,
        _PAYMENT,
        "Record transfer",
        "account_balance",
        TransferForm,
        ("Record a bank transfer?", "Money that reached the bank account directly.", "Record"),
        bank_transfers.record,
        lambda attempt, _: f"A bank transfer of {rupees(attempt.amount_paise)} is recorded.",
        ActionVariant.SUCCESS,
    ),
    "tds": MoneyAct(
        Invoice,
        _PAYMENT,
        "Record TDS",
        "receipt",
        TdsForm,
        (
            "Record tax deducted at source?",
            "The whole amount that the buyer deducted for the tax office; 0 if it deducted nothing. With the"
            " certificate's number, the record is final.",
            "Record",
        ),
        bank_transfers.record_tds,
        lambda _, values: f"{rupees(values['amount_paise'])} of tax deducted at source is recorded.",
    ),
    "write_off": MoneyAct(
        Invoice,
        _CREDIT,
        "Write off",
        "money_off",
        WriteOffForm,
        (
            "Write off what is due?",
            "The business is no longer asked to pay it. The tax is still owed: to lower the tax, issue a credit note.",
            "Write off",
        ),
        bank_transfers.write_off,
        lambda paise, _: f"{rupees(paise)} is written off.",
        _WARNING,
    ),
    "refund": MoneyAct(
        PaymentAttempt,
        _REFUND,
        "Pay back",
        "currency_rupee",
        AmountForm,
        (
            "Pay back?",
            "The provider returns the money to its source, up to the balance of the business.",
            "Pay back",
        ),
        refunds.pay_back,
        lambda refund, _: (
            f"The refund of {rupees(refund.amount_paise)} is {refund.get_status_display().lower()}."
        ),
        _WARNING,
    ),
    "returned": MoneyAct(
        PaymentAttempt,
        _REFUND,
        "Record return",
        "account_balance",
        TransferForm,
        (
            "Record that a transfer was paid back?",
            "Money from the balance of the business that was returned by bank transfer, with the bank's reference.",
            "Record",
        ),
        bank_transfers.give_back,
        lambda _, values: f"A return of {rupees(values['amount_paise'])} is recorded.",
    ),
}


def carry_out(row: StaffAct) -> str:
    """Carry out a stored act in the name of the staff member who requested it. Raises ServiceError."""
    act = ACTS[row.act]
    how = {act.target: row.target_id, "at": now(), "actor_user_id": row.asked_by}
    if act.asked:
        how[act.asked] = row.asked_at
    return act.said(act.flow(**row.values, **how), row.values)


def money_action(name: str) -> Any:
    """The admin action of an act, on the page of its row."""
    act = ACTS[name]

    def acted(model_admin: Any, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        target: Any = act.model._default_manager.get(pk=object_id)
        invoice: Invoice = getattr(target, "invoice", target)
        names = [field.name for field in form.visible_fields()]
        values = {act.amount if name == "amount" else name: form.cleaned_data[name] for name in names}
        sentence = second_person.act(
            carry_out,
            act=name,
            target_id=UUID(object_id),
            tenant_id=invoice.tenant_id,
            values=values,
            amount_paise=values.get(act.amount, invoice.total_paise),
            at=now(),
            actor_user_id=request.user.pk,
            act_id=form.cleaned_data["act_id"],
        )
        return done(request, sentence, change_url(act.model, object_id))

    acted.__name__ = name
    return action(
        description=act.title,
        permissions=[act.permission],
        icon=act.icon,
        variant=act.variant,
        dialog=dialog(*act.ask, act.form),
    )(acted)
