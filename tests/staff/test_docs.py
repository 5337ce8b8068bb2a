"""docs/authentication.md and docs/staff.md agree with the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tenants.audit_labels import ACTIONS
from tests.fixtures import Api

ROOT = Path(__file__).resolve().parents[2]
STAFF = (ROOT / "docs" / "staff.md").read_text()
APPS = ("tenants", "webhooks", "phone_numbers", "messaging", "billing")
AUTHENTICATION = (ROOT / "docs" / "authentication.md").read_text()


@cache
def calls_in(folder: str) -> list[ast.Call]:
    """Return all calls in the code of a folder."""
    return [
        node
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def calls_with(name: str, position: int, *folders: str) -> set[str]:
    """Return the string constants that the code passes to a function, at this position or as the argument `action`."""
    found = set()
    for folder in folders:
        for node in calls_in(folder):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) == name:
                values = [
                    *node.args[position : position + 1],
                    *(k.value for k in node.keywords if k.arg == "action"),
                ]
                found |= {
                    constant.value
                    for value in values
                    for constant in ast.walk(value)
                    if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
                }
    return found


def test_every_flag_is_described() -> None:
    codes = calls_with("flag", 0, "tenants") | {
        "duplicate_tax_id",
        "duplicate_pan",
        "duplicate_email_domain",
        "duplicate_website",
    }
    assert codes
    assert [code for code in codes if f"`{code}`" not in STAFF] == []


def audited_actions() -> set[str]:
    """Return the audit actions in the code: those that functions record, and the decisions about tenants."""
    found = set()
    for writer, position in (
        ("record", 0),
        ("record", 1),
        ("_decide", 2),
        ("_record", 0),
        ("_record", 1),
        ("_audit", 0),
        ("_remove_account", 9),
    ):
        found |= {
            action
            for action in calls_with(writer, position, *APPS)
            if re.fullmatch(r"[a-z_]+\.[a-z_]+", action)
        }
    return found | {f"tenant.{action}" for action in calls_with("decide", 0, "tenants")}


def test_every_audited_action_has_words_on_the_pages_and_in_the_documentation() -> None:
    actions = audited_actions()
    assert {"api_key.create", "webhook_endpoint.create", "billing.credit", "number.register"} <= actions
    assert actions == set(ACTIONS)
    assert dict(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (.+) \|$", STAFF, re.MULTILINE)) == ACTIONS


@pytest.mark.django_db
def test_a_console_session_has_the_members_that_the_page_shows(staff_api: Api) -> None:
    shown = re.search(r"^201\n(\{.*\})$", AUTHENTICATION, re.MULTILINE)
    assert shown is not None
    members = set(re.findall(r'"(\w+)":', shown[1]))
    current = staff_api.get("/v1/console/sessions/current").json()
    assert members == {"token", *current, *current["user"]}
