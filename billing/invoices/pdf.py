"""PDF of an invoice or a credit note: PDF/A-2b on A4, set by typst with fonts of a wheel, never those of the system."""

import json
import re
from importlib.resources import files
from typing import Any

import typst
from django.conf import settings

from billing.invoices.printed_fields import Document

TEMPLATE = settings.BASE_DIR / "templates" / "billing" / "document.typ"
_FONTS = str(files("manimgx_fonts"))
_NOT_IN_THE_FONTS = re.compile(r"[^\u0020-\u024f\u0900-\u0dff\u2010-\u2027\u20b9\u2022]")
"""What is not Latin, a script of India, or a sign of a document."""


def render(document: Document) -> bytes:
    """The PDF. PDF/A refuses characters that no font has: if there are any, they are replaced by `?`."""
    try:
        return _compile(document)
    except typst.TypstError:
        return _compile({name: _printable(value) for name, value in document.items()})


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return _NOT_IN_THE_FONTS.sub("?", value)
    if isinstance(value, dict):
        return {name: _printable(part) for name, part in value.items()}
    return [_printable(part) for part in value] if isinstance(value, list | tuple) else value


def file_name(number: str) -> str:
    """The file of a document: `WG-2627-000123.pdf`."""
    return f"{number.replace('/', '-')}.pdf"


def _compile(document: Document) -> bytes:
    made: bytes = typst.compile(
        str(TEMPLATE),
        root=str(TEMPLATE.parent),
        format="pdf",
        pdf_standards="a-2b",
        font_paths=[_FONTS],
        ignore_system_fonts=True,
        sys_inputs={"document": json.dumps(document)},
    )
    return made
