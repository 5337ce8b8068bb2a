"""No page or export of the staff admin runs text from strangers or tenants as markup, script or formula."""

import csv
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.db import models
from django.test import Client
from django.urls import NoReverseMatch, reverse

from gateway.csv_cells import as_text
from tests.browsers import staff_pages
from tests.staff.test_pages import browser, rows
from webhooks.models import Endpoint

__all__ = ["browser", "rows"]

pytestmark = pytest.mark.django_db

MARKUP = "\"'><script>alert('stored-xss')</script><img src=x onerror=alert(1)>"
LINK = "javascript:alert('stored-xss')//"


class Hostile(HTMLParser):
    """Collects the parts of a page that would run: scripts and handlers from stored texts, and links to scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        for name, value in attrs:
            runs = re.match(r"\s*(javascript|data|vbscript):", value or "", re.IGNORECASE)
            if name in {"href", "src", "action", "formaction"} and runs and "image/" not in (value or ""):
                self.found.append(f"<{tag} {name}={value}>")
            if name.startswith("on") and "alert" in (value or ""):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_data(self, data: str) -> None:
        if self._in_script and "stored-xss" in data:
            self.found.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


def hostile_in(page: str) -> list[str]:
    parser = Hostile()
    parser.feed(page)
    return parser.found


def test_the_check_finds_what_would_run() -> None:
    for text in (MARKUP, f'<a href="{LINK}">x</a>', '<b onclick="alert(1)">x</b>'):
        assert hostile_in(text), text
    assert not hostile_in('<a href="https://a.example">stored-xss</a>')


@pytest.fixture
def stored(rows: list[Any]) -> None:
    """Set every free text of the rows to markup, and every URL to a script."""
    Endpoint.objects.update(url=LINK, description=MARKUP)
    for model in staff_pages():
        texts = {
            field.name: (LINK if "url" in field.name or field.name == "website" else MARKUP)[
                : field.max_length
            ]
            for field in model._meta.concrete_fields
            if isinstance(field, models.CharField | models.TextField)
            and not (field.choices or field.unique or field.primary_key or field.remote_field)
            and field.name in FREE
        }
        if texts:
            model._default_manager.update(**texts)


FREE = {
    "name",
    "description",
    "website",
    "contact_name",
    "company",
    "rejected_reason",
    "legal_name",
    "verified_name",
    "display_phone_number",
    "error",
    "subject",
    "text",
    "waba_id",
    "reason",
    "client_ref",
    "use_case",
}


def pages(browser: Client) -> Iterator[tuple[str, str]]:
    """Yield path and HTML of the start page, of every list, and of up to three rows of each table."""
    yield "/admin/", browser.get("/admin/").content.decode()
    for model in staff_pages():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        paths = [
            reverse(f"{name}_changelist"),
            reverse(f"{name}_changelist") + "?q=" + "%3Cscript%3Estored-xss",
        ]
        for row in model._default_manager.all()[:3]:
            try:
                paths.append(reverse(f"{name}_change", args=[quote(row.pk)]))
            except NoReverseMatch:
                continue
        for path in paths:
            answer = browser.get(path, follow=True)
            assert answer.status_code == 200, path
            yield path, answer.content.decode()


def test_what_was_stored_is_text_on_every_page(browser: Client, stored: None) -> None:
    seen = 0
    for path, page in pages(browser):
        assert not hostile_in(page), path
        seen += "stored-xss" in page
    assert seen > 10, "the stored texts must appear on the pages"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1"])
def test_a_name_is_no_formula_in_an_export(name: str) -> None:
    line = io.StringIO()
    csv.writer(line).writerow([as_text(name)])
    (cell,) = next(csv.reader(io.StringIO(line.getvalue(), newline="")))
    assert cell[0] == "'"
