"""E-invoice registration: documents for the portal, and its answers (IRN, acknowledgement, signed QR code).

A person uploads `file_for_portal` to the portal; its file with the answers comes back through `record_file`, by the
page "E-invoices" of the admin.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import orjson
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.einvoices import documents
from billing.einvoices.documents import Document
from billing.models import CreditNote, Invoice
from tenants import audit
from tenants.lifecycle import IST


@dataclass(frozen=True, slots=True)
class EInvoiceRegistration:
    """The portal's answer for one document."""

    number: str
    irn: str
    ack_no: str
    ack_at: datetime
    signed_qr: str


class UnreadableAnswer(ValueError):
    """An answer of the portal lacks a member, or its QR code is that of another document."""


def file_for_portal() -> bytes:
    """The documents for the portal's bulk upload."""
    return orjson.dumps(list(unregistered()), option=orjson.OPT_INDENT_2)


def record_file(content: bytes, *, actor_user_id: int | None = None) -> tuple[int, list[str]]:
    """Write the portal's answers to their documents; returns how many, and what is wrong with the others.

    Raises UnreadableAnswer for what is no JSON.
    """
    try:
        answers = json.loads(content)
    except ValueError as error:
        raise UnreadableAnswer(f"The file cannot be read: {error}") from None
    written, problems = 0, []
    for answer in answers if isinstance(answers, list) else [answers]:
        try:
            written += record(parsed(answer), actor_user_id=actor_user_id)
        except UnreadableAnswer as error:
            problems.append(str(error))
    return written, problems


def unregistered() -> Iterator[Document]:
    """The documents that must be registered and are not, oldest first: invoices, then credit notes."""
    for invoice in waiting_invoices().order_by("number"):
        yield documents.of_invoice(invoice)
    notes = CreditNote.objects.filter(
        irn__isnull=True, invoice__irn__isnull=False, invoice__irn_cancelled_at__isnull=True
    )
    notes = notes.exclude(reason__endswith=CreditNote.WITHOUT_TAX)
    for note in notes.select_related("invoice").order_by("number"):
        yield documents.of_credit_note(note)


def waiting_invoices() -> QuerySet[Invoice]:
    """Invoices that the portal takes and has not registered."""
    taken = Q(supply_type="export") | ~Q(buyer__gstin=None)
    return Invoice.objects.filter(taken, irn__isnull=True)


def parsed(answer: Mapping[str, Any]) -> EInvoiceRegistration:
    """One answer of the portal: `Irn`, `AckNo`, `AckDt` (Indian time) and `SignedQRCode`, whose content names the
    document. Raises UnreadableAnswer. The portal's signature is not checked: the file comes from staff.
    """
    try:
        content = answer["SignedQRCode"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
        data = json.loads(claims["data"])
        number, named = str(data["DocNo"]), str(data["Irn"])
        irn, moment = str(answer["Irn"]), str(answer["AckDt"])
        found = EInvoiceRegistration(
            number=number,
            irn=irn,
            ack_no=str(answer["AckNo"]),
            ack_at=datetime.fromisoformat(moment).replace(tzinfo=IST),
            signed_qr=answer["SignedQRCode"],
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableAnswer(f"This is no answer of the portal: {type(error).__name__} {error}") from None
    if named != irn or len(irn) != 64:
        raise UnreadableAnswer(f"The QR code of {number} has another IRN than its answer.")
    return found


def record(registration: EInvoiceRegistration, *, actor_user_id: int | None = None) -> bool:
    """Write a registration to its document, audited; False when it has this one already.

    Raises UnreadableAnswer for an unknown document, or one with another IRN.
    """
    values = asdict(registration)
    with transaction.atomic():
        document = _locked(values.pop("number"))
        if document.irn == registration.irn:
            return False
        if document.irn is not None:
            raise UnreadableAnswer(f"{registration.number} is registered with another IRN.")
        type(document).objects.filter(pk=document.pk).update(**values)
        audit.record(
            action="billing.einvoice",
            target_type="invoice" if isinstance(document, Invoice) else "credit_note",
            target_id=document.public_id,
            tenant_id=document.tenant_id if isinstance(document, Invoice) else document.invoice.tenant_id,
            actor_user_id=actor_user_id,
            details={"irn": registration.irn, "ack_no": registration.ack_no},
        )
    return True


def _locked(number: str) -> Invoice | CreditNote:
    invoice = Invoice.objects.select_for_update(of=("self",)).filter(number=number).first()
    note = CreditNote.objects.select_for_update(of=("self",)).filter(number=number).first()
    if found := invoice or note:
        return found
    raise UnreadableAnswer(f"There is no document {number}.")
