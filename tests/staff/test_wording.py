"""No page of the staff admin shows a code, a moment in ISO 8601, paise, or an acronym in lower case.

`test_accessibility.py` applies `raw_words` to each page, because opening all pages takes seconds.
"""

import re
from html.parser import HTMLParser

from billing.models import BillingSnapshot, Invoice, Refund
from gateway.clock import now
from messaging.models import Batch, KeptNotification, MessageTemplate
from phone_numbers.models import PhoneNumber
from tenants import audit
from tenants.labels import ACRONYMS
from tenants.models import Tenant
from tests.browsers import staff_pages
from webhooks.models import Delivery, Endpoint

RAW = {
    "a code": re.compile(r"(?<![\w.@/…-])[A-Za-z]+(?:_[A-Za-z0-9]+)+(?!…)"),
    "a moment in ISO 8601": re.compile(r"\b\d{4}-\d\d(?:-\d\d)?(?![\d-])"),
    "a hyphen for nothing": re.compile(r"^-$"),
    "paise": re.compile(r"paise"),
    "a pair of a code and its text": re.compile(r"^\('"),
    "an acronym in small letters": re.compile(
        rf"(?<![\w.@/-])({'|'.join(ACRONYMS)})(?![\w.:/])", re.IGNORECASE
    ),
}
PUBLIC_IDS = re.compile(r"(evt|dlv|bat|inv|mnd|pat|rfd|req|pay|setl|whsec|wb_(live|test))_[\w…]*")
BLANK_CELL = re.compile(r"<td[^>]*>\s*</td>")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Words(HTMLParser):
    """Collects the visible texts of HTML, with placeholders and labels."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in {"script", "style"} or (tag == "span" and "material-symbols" in (named.get("class") or "")):
            self._hidden.append(tag)
        self.texts += [text for name in ("placeholder", "aria-label") if (text := named.get(name))]

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and self._hidden[-1] == tag:
            self._hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(" ".join(data.split()))


def raw_in(text: str) -> list[str]:
    """Return the parts of a text that are not meant for readers."""
    words = UUID.sub("", PUBLIC_IDS.sub("", text))
    return [
        f"{kind}: {found[0]!r} in {text!r}"
        for kind, pattern in RAW.items()
        for found in pattern.finditer(words)
        if found[0] not in ACRONYMS.values()
    ]


def test_the_check_knows_what_is_raw() -> None:
    for text in (
        "past_due",
        "TIER_2K",
        "2026-11-22T11:07",
        "2027-01",
        "59000 paise",
        "('open', 'Open')",
        "-",
        "Waba ids",
        "Id",
        "last http status",
    ):
        assert raw_in(text), text
    for text in (
        "Past due",
        "evt_01M81F",
        "WABA IDs",
        "wb_live_bCsC9w1E",
        "https://a.example/id/url",
        "22 Nov 2026, 11:07 UTC",
    ):
        assert not raw_in(text), text


def raw_words(page: str) -> list[str]:
    """Return the problems of the words in a page's HTML."""
    main = page.partition('id="main"')[2].partition("</main>")[0]
    blank, words = BLANK_CELL.search(main), Words()
    words.feed(main)
    assert words.texts
    return [problem for text in words.texts for problem in raw_in(text)] + [f"empty cell: {blank}"] * bool(
        blank
    )


def codes_in_every_row(tenant: Tenant) -> None:
    """Give rows codes as in production, in addition to those of `test_accessibility.a_row_of_every_table`."""
    at = now().isoformat()
    Tenant.objects.filter(pk=tenant.pk).update(
        billing_status="past_due", tax_id_type="gstin", suspended_reason="abuse", created_via="signup"
    )
    Endpoint.objects.update(waba_ids=["2001"], statuses=["read"], uid="shop-1", metadata={"branch": "Pune"})
    tried = {"at": at, "http_status": 500, "ms": 3, "error": "http_5xx"}
    Delivery.objects.update(status="failed", last_error="http_5xx", last_http_status=500, attempt_log=[tried])
    PhoneNumber.objects.update(
        connection_detail="no_verified_endpoint",
        quality_rating="GREEN",
        messaging_limit_tier="TIER_2K",
        throughput_level="NOT_APPLICABLE",
        name_status="AVAILABLE_WITHOUT_REVIEW",
    )
    Batch.objects.update(waiting_for="number_not_connected")
    MessageTemplate.objects.update(status="IN_APPEAL", category="MARKETING", language="en")
    KeptNotification.objects.update(reason="bad_json")
    BillingSnapshot.objects.create(
        tenant=tenant,
        period="2027-02",
        active_numbers=1,
        subtotal_paise=50_000,
        tax_paise=9_000,
        total_paise=59_000,
        taken_at=now(),
        numbers=[{"display_phone_number": "+91 98000 00001", "connected_seconds": 7200}],
        terms={"first_number_paise": 50_000, "tax_inclusive": False, "code": "per_number"},
    )
    Invoice.objects.update(irn="1f", ack_no="7", ack_at=now())
    Refund.objects.update(error={"code": "BAD_REQUEST_ERROR"})
    audit.record(
        action="billing.refund",
        target_type="credit_note",
        target_id="1",
        tenant_id=tenant.id,
        details={
            "amount_paise": 59_000,
            "old_key_expires_at": at,
            "flags": ["duplicate_tax_id"],
            "before": {"billing_status": None},
            "after": {"billing_status": "past_due"},
        },
    )


def test_labels_of_choices_are_sentences() -> None:
    """Without a label, Django would show the choice `past_due` as "Past Due"."""
    for model in staff_pages():
        for field in model._meta.concrete_fields:
            for _, text in field.flatchoices:
                later = str(text).split()[1:]
                assert [word for word in later if word[:1].isupper() and not word.isupper()] == [], text
