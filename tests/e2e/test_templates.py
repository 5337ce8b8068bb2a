"""The commands of docs/templates.md, in order, with the running service."""

from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.conftest import Stack, until
from tests.e2e.reading import Reader
from tests.e2e.test_main_job import inbox

pytestmark = pytest.mark.e2e

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64


def wait_for_approval(stack: Stack, template_id: str) -> None:
    """Wait until the tenant's endpoint has received the `template.status` of Meta's approval, and check the event."""

    def approval() -> list[dict[str, Any]]:
        return [
            row
            for row in inbox(stack)
            if row["event_type"] == "template.status"
            and str(row["envelope"]["data"]["message_template_id"]) == template_id
            and row["envelope"]["data"]["event"] == "APPROVED"
        ]

    [row, *_] = until(approval, "the approval")
    assert row["signature"] == "valid"


def test_the_life_of_a_template_as_documented(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "sample.png").write_bytes(PNG)
    reader = Reader("docs/templates.md", stack, tmp_path)
    reader.environment["HANDLE"] = reader.run("media-handle")["h"]
    made = reader.run('"order_shipped"')
    assert made["status"] == "PENDING"
    reader.environment["TEMPLATE_ID"] = made["id"]
    wait_for_approval(stack, made["id"])
    [listed] = reader.run("status=APPROVED")["data"]
    assert (listed["id"], listed["components"][0]["format"]) == (made["id"], "IMAGE")
    assert reader.run("/v1/messages")["messages"][0]["id"].startswith("wamid.")
    assert reader.run("your parcel")["success"] is True
    assert (
        stack.api("GET", f"/v1/templates/{made['id']}")
        .json()["components"][1]["text"]
        .startswith("Hi {{1}}, your parcel")
    )
    assert reader.run("-X DELETE") == {"success": True}
    assert stack.api("GET", f"/v1/templates/{made['id']}").status_code == 404
    assert stack.api("GET", "/v1/templates?name=order_shipped").json()["data"] == []

    code = reader.run('"login_code"')
    wait_for_approval(stack, code["id"])
    assert reader.run('"482913"')["messages"][0]["id"].startswith("wamid.")
    assert reader.run("library?")["data"]
    assert reader.run('"library_template_name"')["status"] == "APPROVED"
    assert reader.commands == []


def test_an_authentication_template_wants_its_code_twice(stack: Stack) -> None:
    template = {"name": "second_code", "language": "en_US", "category": "AUTHENTICATION"}
    components: list[dict[str, Any]] = [
        {"type": "BODY"},
        {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]},
    ]
    made = stack.api("POST", "/v1/templates", {**template, "components": components}).json()
    stack.simulator("POST", f"/sim/templates/{made['id']}", {"event": "APPROVED"})
    body = {"type": "body", "parameters": [{"type": "text", "text": "482913"}]}
    button = {"type": "button", "sub_type": "url", "index": "0", "parameters": body["parameters"]}
    for sent in ([body], [button]):
        answer = stack.api(
            "POST",
            "/v1/messages",
            {
                "from": stack.ready["phone_number_id"],
                "to": "+919812345678",
                "type": "template",
                "template": {"name": "second_code", "language": {"code": "en_US"}, "components": sent},
            },
        )
        assert (answer.status_code, answer.json()["source"]) == (400, "meta")
        assert answer.json()["error"]["code"] in {132000, 131008}


def test_a_rejection_is_listed_with_its_reason(stack: Stack) -> None:
    body = {
        "name": "to_reject",
        "language": "en_US",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "Your order is on its way."}],
    }
    made = stack.api("POST", "/v1/templates", body).json()
    [listed] = until(
        lambda: stack.api("GET", "/v1/templates?name=to_reject&status=REJECTED").json()["data"],
        "the rejection",
    )
    assert (listed["id"], listed["rejected_reason"]) == (made["id"], "INVALID_FORMAT")


def test_a_template_made_elsewhere_is_listed_within_a_minute(stack: Stack) -> None:
    """The approval concerns an unknown template, so the worker reads the account's templates."""
    number = stack.api("GET", f"/v1/numbers/{stack.ready['phone_number_id']}").json()
    account = stack.simulator("POST", "/sim/accounts", {"waba_id": number["waba_id"]})
    made = requests.post(
        f"{stack.ready['simulator_url']}/v25.0/{number['waba_id']}/message_templates",
        json={
            "name": "made_elsewhere",
            "language": "en_US",
            "category": "UTILITY",
            "components": [{"type": "BODY", "text": "Your order is on its way."}],
        },
        headers={"Authorization": f"Bearer {account['access_token']}"},
        timeout=30,
    )
    assert made.ok, made.text
    [listed] = until(
        lambda: stack.api("GET", "/v1/templates?name=made_elsewhere&status=APPROVED").json()["data"],
        "the template",
        seconds=75,
    )
    assert listed["id"] == made.json()["id"]
