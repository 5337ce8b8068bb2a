"""docs/authentication.md and docs/staff.md say what the code does."""

import ast
import re
from pathlib import Path

import pytest

from tests.fixtures import Api

ROOT = Path(__file__).resolve().parents[2]
STAFF = (ROOT / "docs" / "staff.md").read_text()
APPS = ("tenants", "webhooks", "phone_numbers", "messaging", "billing")
AUTHENTICATION = (ROOT / "docs" / "authentication.md").read_text()


def calls_with(name: str, position: int, *folders: str) -> set[str]:
    """The constant first arguments of calls of a function in the code."""
    found = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if "tests" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and getattr(node.func, "attr", getattr(node.func, "id", "")) == name
                ):
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


def test_every_audited_action_is_named() -> None:
    found = calls_with("record", 9, *APPS) | calls_with("_audit", 0, *APPS)
    actions = {action for action in found if "." in action and not action.endswith(".")}
    assert {"api_key.create", "webhook_endpoint.create", "billing.credit"} <= actions
    assert [action for action in actions if f"`{action}`" not in STAFF] == []


@pytest.mark.django_db
def test_a_console_session_has_the_members_that_the_page_shows(staff_api: Api) -> None:
    shown = re.search(r"^201\n(\{.*\})$", AUTHENTICATION, re.MULTILINE)
    assert shown is not None
    members = set(re.findall(r'"(\w+)":', shown[1]))
    current = staff_api.get("/v1/console/sessions/current").json()
    assert members == {"token", *current, *current["user"]}
