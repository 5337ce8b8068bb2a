"""PDF of an invoice or a credit note: PDF/A-2b on A4, made by typst with fonts from a package, never those of the
system.

The PDF is made once and stored, so later changes of templates and settings never change an issued document.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import typst
from django.conf import settings
from django.http import HttpResponse

from billing.invoices import printed_fields
from billing.invoices.printed_fields import Document
from billing.models import CreditNote, Invoice, IssuedPdf
from gateway.clock import now

TEMPLATE = settings.BASE_DIR / "templates" / "billing" / "document.typ"
_NOT_IN_THE_FONTS = re.compile(r'the text `"(.+?)"` could not be displayed')
_ESCAPED = re.compile(r"\\u\{(\w+)\}")


def issued(document: Invoice | CreditNote) -> bytes:
    """The stored PDF of a document, made at the first call. A document with its IRN has another file than before."""
    invoice = document if isinstance(document, Invoice) else document.invoice
    key = {"number": document.number, "irn": document.irn or ""}
    kept = IssuedPdf.objects.filter(**key).first()
    if kept is None:
        fields = (
            printed_fields.of_invoice(document, as_issued=True)
            if isinstance(document, Invoice)
            else printed_fields.of_credit_note(document)
        )
        made = IssuedPdf(tenant_id=invoice.tenant_id, content=render(fields), made_at=now(), **key)
        IssuedPdf.objects.bulk_create([made], ignore_conflicts=True)
        kept = IssuedPdf.objects.get(**key)
    return bytes(kept.content)


def render(document: Document) -> bytes:
    """Make the PDF. PDF/A forbids characters that no font has, so these are shown as code points: `U+0F40`."""
    try:
        return _compile(document)
    except typst.TypstError as error:
        named = "".join(_NOT_IN_THE_FONTS.findall(error.diagnostic))
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), named)
        codes = {
            ord(sign): f"U+{ord(sign):04X}" for sign in text if not sign.isascii() or not sign.isprintable()
        }
        if not codes:
            raise
        return render({name: _without(codes, value) for name, value in document.items()})


def _without(codes: Mapping[int, str], value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(codes)
    if isinstance(value, dict):
        return {name: _without(codes, part) for name, part in value.items()}
    return [_without(codes, part) for part in value] if isinstance(value, list | tuple) else value


def require_logo() -> None:
    """Raise OSError or ValueError when the configured logo cannot be used in documents."""
    if svg := printed_fields.logo():
        try:
            typst.compile(b'#image(bytes(sys.inputs.logo), format: "svg")', sys_inputs={"logo": svg})
        except typst.TypstError as error:
            raise ValueError(str(error)) from None


def response(document: Invoice | CreditNote) -> HttpResponse:
    """The stored PDF as a response that a browser shows."""
    answer = HttpResponse(issued(document), content_type="application/pdf")
    answer["Content-Disposition"] = f'inline; filename="{file_name(document.number)}"'
    return answer


def file_name(number: str) -> str:
    """The file name of a document: `WG-2627-000123.pdf`."""
    return f"{number.replace('/', '-')}.pdf"


def _compile(document: Document) -> bytes:
    made: bytes = typst.compile(
        str(TEMPLATE),
        root=str(TEMPLATE.parent),
        format="pdf",
        pdf_standards="a-2b",
        font_paths=_fonts(),
        sys_inputs={"document": json.dumps(document)},
    )
    return made


@cache
def _fonts() -> typst.Fonts:
    wheels = [str(files("manimgx_fonts")), str(files("manimgx_fonts_cjk"))]
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=wheels)
