"""Values in the form in which pages show them."""

from contextlib import nullcontext
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError

from tenants.audit_labels import action_words, changes, said
from tenants.labels import milliseconds, phone_number, readable
from tenants.names import check_name, quoted
from tenants.templatetags.names import ist


@pytest.mark.parametrize(
    ("duration", "shown"),
    [(0, "< 1 ms"), (0.04, "< 1 ms"), (1, "1 ms"), (1.0, "1.0 ms"), (12.34, "12.3 ms"), (1204, "1,204 ms")],
)
def test_a_duration_has_its_unit_and_is_never_nothing(duration: float, shown: str) -> None:
    assert milliseconds(duration) == shown


def test_only_bare_digits_get_the_plus_of_a_phone_number() -> None:
    names = ["919812345678", "+91 98123 45678", "IN.ExAmPlE123", ""]
    assert [phone_number(name) for name in names] == ["+919812345678", "+91 98123 45678", "IN.ExAmPlE123", ""]


def test_an_action_that_the_code_no_longer_has_is_spelled_out() -> None:
    assert action_words("cell.move_tenant") == "Cell move tenant"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *((f"Asha{link}", "link") for link in (" www.evil.example", " WWW.evil.example", " ftp://a", "://")),
        *((f"Asha{mark}Ltd", "control") for mark in "\0\n\x1f\x7f\x9f\u2028\u2029\u202a\u202e\u2066\u2069"),
        *((name, None) for name in ("Asha & Sons", "Bowww.in", "www", "asha.example", "Aśa–1: a/b", "")),
    ],
)
def test_a_name_is_one_line_without_a_link(name: str, problem: str | None) -> None:
    with pytest.raises(ValidationError, match=problem) if problem else nullcontext():
        check_name(name)


def test_a_mail_quotes_a_name_in_one_line_and_cuts_it_after_80_characters() -> None:
    assert quoted(" Asha\r\n\u202e & \t Sons ") == "“Asha & Sons”"
    assert [quoted("x" * length) for length in (80, 81)] == [f"“{'x' * 80}”", f"“{'x' * 79}…”"]


def test_a_mail_writes_a_moment_in_indian_time() -> None:
    assert ist(datetime(2026, 11, 30, 18, 45, tzinfo=UTC)) == "1 December 2026, 00:15 IST"
    assert ist(None) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("duplicate_tax_id", "duplicate tax ID"),
        ("http_5xx", "HTTP 5xx"),
        ("IN_APPEAL", "in appeal"),
        *((text, text) for text in ("wb_live_bCsC9w1E", "evt_01M81F", "Asha_Traders", "abuse", "a b_c")),
    ],
)
def test_a_stored_text_that_is_a_code_is_shown_in_words(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_the_details_of_an_audit_entry_are_lines_with_the_changes_first() -> None:
    details = {
        "acting_key": "wb_live_bCsC9w1E",
        "note": "spam",
        "sandbox": False,
        "events": 0,
        "app_id": None,
        "numbers": [],
        "name": "",
        "flags": ["duplicate_tax_id", "role_email"],
        "terms": {"tax_inclusive": False, "billing_status": "past_due"},
        "before": {"retention_days": 90, "billing_restricted": True, "sandbox": False, "tax_id": None},
        "after": {
            "retention_days": 30,
            "billing_restricted": False,
            "sandbox": False,
            "tax_id": "AAAPL1234C",
        },
        "expires_at": "2026-11-30T18:30:00Z",
    }
    changed = ["Retention days: 90 → 30", "Billing restricted: yes → no", "Tax ID: – → AAAPL1234C"]
    assert changes(details) == changed
    assert said(details) == [
        *changed,
        "Note: spam",
        "Sandbox: no",
        "Events: 0",
        "Flags: duplicate tax ID, role email",
        "Terms: tax inclusive no, billing status past due",
        "Expires at: 30 Nov 2026, 18:30 UTC",
    ]
    moments = {"before": {}, "after": {"expires_at": "2026-11-30T18:30:00Z"}}
    assert changes(moments, ZoneInfo("Asia/Kolkata")) == ["Expires at: – → 1 Dec 2026, 00:00 IST"]
    assert changes({"before": "x", "after": {"name": "y"}}) == []
