"""The simulator accepts every example of docs/sending.md exactly as printed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.files.uploadedfile import SimpleUploadedFile

from phone_numbers.models import PhoneNumber
from tests.fixtures import Api
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = (Path(__file__).resolve().parents[3] / "docs/sending.md").read_text()
EXAMPLES = re.findall(r"^##+ ([^\n]+)\n(?:(?!^##).)*?^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TYPES = {
    "text", "image", "video", "audio", "document", "sticker", "location", "contacts", "reaction", "interactive",
    "template",
}  # fmt: skip
TEMPLATES: list[dict[str, Any]] = [
    {
        "name": "order_shipped",
        "language": "en_US",
        "category": "UTILITY",
        "components": [
            {
                "type": "BODY",
                "text": "Hi {{1}}, your order {{2}} is on its way.",
                "example": {"body_text": [["Asha", "A-17"]]},
            }
        ],
    },
    {
        "name": "login_code",
        "language": "en_US",
        "category": "AUTHENTICATION",
        "components": [
            {"type": "BODY"},
            {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]},
        ],
    },
]


def test_each_message_type_has_an_example() -> None:
    assert {json.loads(body).get("type") for _, body in EXAMPLES} >= TYPES


@pytest.mark.parametrize(("heading", "body"), EXAMPLES, ids=[heading for heading, _ in EXAMPLES])
def test_the_example_is_accepted(
    api: Api,
    number: PhoneNumber,
    account: SimulatedAccount,
    simulator: RunningSimulator,
    heading: str,
    body: str,
) -> None:
    values = {"$FROM": number.phone_number_id}
    if "$WAMID" in body:
        customer = {
            "phone_number_id": number.phone_number_id,
            "from": "919812345678",
            "text": "Do you have it?",
        }
        made = simulator.control("POST", "inbound", customer)
        values["$WAMID"] = made.get("id") or made["message"]["id"]
    if "$MEDIA_ID" in body:
        form = {
            "from": number.phone_number_id,
            "file": SimpleUploadedFile("photo.jpg", b"\xff\xd8\xff", "image/jpeg"),
        }
        values["$MEDIA_ID"] = api.client.post("/v1/media", form, headers=api.headers).json()["id"]
    if '"template"' in body:
        _make_templates(account, simulator)
    for name, value in values.items():
        body = body.replace(name, value)
    path = "/v1/messages/read" if heading == "Read marks and typing" else "/v1/messages"
    answer = api.post(path, body.encode())
    assert answer.status_code == 200, answer.content


def _make_templates(account: SimulatedAccount, simulator: RunningSimulator) -> None:
    simulator.control("PUT", "settings", {"templates": {"review_ms": 0}})
    for template in TEMPLATES:
        answer = requests.post(
            f"{simulator.url}/v25.0/{account.waba_id}/message_templates",
            json=template,
            headers={"Authorization": f"Bearer {account.access_token}"},
            timeout=5,
        )
        assert answer.ok, answer.text
        simulator.control("POST", f"templates/{answer.json()['id']}", {"event": "APPROVED"})
    simulator.control("PUT", "settings", {"templates": {"review_ms": 2000}})
