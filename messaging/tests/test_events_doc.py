"""docs/events.md has an envelope of each event type, equal to the one that the code builds for the same cause."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.db import transaction

from gateway.upstream.notifications.normalise import FIELDS, normalise
from gateway.upstream.tests.notifications import BODIES, drafts_of
from messaging.batches import runner
from messaging.tests.incoming import envelopes_of, number_of, post
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from tenants.models import Tenant
from tests.fixtures import Api
from webhooks.events.envelope import EVENT_TYPES, OPERATIONAL_TYPES

PAGE = (Path(__file__).resolve().parents[2] / "docs/events.md").read_text()
EXAMPLES = {
    heading: json.loads(block)
    for heading, block in re.findall(
        r"^### (\S+)\n(?:(?!^###).)*?```json\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL
    )
}
ENVELOPE = [
    "id",
    "type",
    "api_version",
    "created_at",
    "tenant_id",
    "waba_id",
    "phone_number_id",
    "display_phone_number",
    "wamid",
    "wa_id",
    "user_id",
    "dedupe_key",
    "data",
    "raw",
    "raw_path",
]
OWN = {
    "message.outbound",
    "message.history",
    "customer.opt_out",
    "batch.completed",
    "number.connection",
    "token.expiring",
    "token.invalid",
    *OPERATIONAL_TYPES,
}
WABA, NUMBER, DIGITS = "100200300400500", "200300400500600", "919800000001"


def test_there_is_an_example_of_each_type_in_the_order_of_the_specification() -> None:
    assert list(EXAMPLES) == list(EVENT_TYPES)


def test_the_examples_that_endpoints_can_be_sent_are_those_of_the_page() -> None:
    path = Path(__file__).resolve().parents[2] / "webhooks/events/examples.json"
    assert json.loads(path.read_text()) == EXAMPLES, "copy the page's examples into the file"


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_the_members_are_the_specifications_in_its_order(kind: str) -> None:
    example = EXAMPLES[kind]
    assert list(example) == ENVELOPE
    assert example["type"] == kind
    assert (example["raw"] is None) is (example["raw_path"] is None) is (kind in OWN)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [kind for kind in EVENT_TYPES if kind not in OWN])
def test_the_example_is_what_its_notification_becomes(kind: str, tenant: Tenant) -> None:
    example = EXAMPLES[kind]
    (name,) = [name for name, body in BODIES.items() if json.loads(body) == example["raw"]]
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER, digits=DIGITS)
    assert post(BODIES[name]).status_code == 200
    (made,) = [each for each in envelopes_of(tenant) if each["dedupe_key"] == example["dedupe_key"]]
    for member in set(ENVELOPE) - {"id", "created_at", "tenant_id"}:
        assert made[member] == example[member], member
    assert orjson.dumps(example["data"]) in [draft.data for draft in drafts_of(BODIES[name])]


INBOUND = PAGE.split("\n### message.inbound\n")[1].split("\n### ")[0]
MESSAGES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", INBOUND, re.DOTALL)[1:]]
SHOWN = {
    "text", "image", "video", "audio", "document", "sticker", "location", "contacts", "interactive", "button",
    "order", "reaction", "system", "unsupported", "edit", "revoke",
}  # fmt: skip


def test_there_is_an_inbound_message_of_each_type() -> None:
    assert {message["type"] for message in MESSAGES} == SHOWN


@pytest.mark.parametrize("place", range(len(MESSAGES)))
def test_an_inbound_message_is_what_its_notification_becomes(place: int) -> None:
    made = [
        json.loads(draft.data)["message"]
        for name, body in BODIES.items()
        if name.startswith("messages__")
        for change in normalise(body).changes
        for draft in change.drafts
        if draft.type == "message.inbound"
    ]
    assert MESSAGES[place] in made


def named_as(made: dict[str, Any], example: dict[str, Any]) -> Any:
    """A real event with the ids of the number, the message and the batch replaced by those of the example."""
    text = json.dumps(made)
    for member in ("waba_id", "phone_number_id", "display_phone_number", "wamid"):
        if made[member] is not None:
            text = text.replace(made[member], example[member])
    if made["type"] == "batch.completed":
        text = text.replace(made["data"]["id"], example["data"]["id"])
    return json.loads(text)


def shape_of_times(event: dict[str, Any]) -> Any:
    """An event without `id` and `tenant_id`, and with every time replaced by one text."""
    text = json.dumps({member: value for member, value in event.items() if member not in ("id", "tenant_id")})
    return json.loads(re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "a time", text))


@pytest.mark.django_db(transaction=True)
def test_the_events_of_connections_and_tokens_are_the_services(tenant: Tenant) -> None:
    verified_endpoint(tenant)
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER, digits=DIGITS)
    state.recompute(tenant_id=tenant.id)
    update: dict[str, Any] = EXAMPLES["account.update"]["raw"]
    assert post(json.dumps(update).encode()).status_code == 200
    BusinessAccount.objects.update(token_expires_at=datetime(2026, 11, 8, 6, 40, tzinfo=UTC))
    with transaction.atomic():
        state.token_expiring(BusinessAccount.objects.get(), days=7)
    BusinessAccount.objects.update(token_expires_at=None)
    state.token_failed(waba_id=WABA)
    made = {each["type"]: each for each in envelopes_of(tenant)}
    for kind in ("number.connection", "token.expiring", "token.invalid"):
        written, example = shape_of_times(made[kind]), shape_of_times(EXAMPLES[kind])
        # The dedupe key ends with a time or a count, which differs.
        ends = [re.sub(r"\d+$", "", each.pop("dedupe_key")) for each in (written, example)]
        assert written == example
        assert ends[0] == ends[1]


@pytest.mark.django_db(transaction=True)
def test_a_send_makes_the_example_of_an_outbound_message(
    api: Api, tenant: Tenant, number: PhoneNumber
) -> None:
    example = EXAMPLES["message.outbound"]
    request = {key: value for key, value in example["data"]["request"].items() if key != "messaging_product"}
    assert api.post("/v1/messages", {"from": number.phone_number_id, **request}).status_code == 200
    (made,) = [each for each in envelopes_of(tenant) if each["type"] == "message.outbound"]
    written = named_as(made, example)
    assert shape_of_times(written) == shape_of_times(example)
    assert list(written["data"]["request"]) == list(example["data"]["request"]), "in the order of the bytes"


@pytest.mark.django_db(transaction=True)
def test_a_batch_makes_the_example_of_its_end(
    api: Api, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messaging.batches.lifecycle.wake", lambda: None)
    example = EXAMPLES["batch.completed"]
    people = ["+919800001001", "+919800001002", "+919812340030"]
    body = {
        "from": number.phone_number_id,
        "client_ref": example["data"]["client_ref"],
        "messages": [{"to": to, "type": "text", "text": {"body": "Hello"}} for to in people],
    }
    assert api.post("/v1/messages/batch", body).status_code == 202
    runner.run()
    (made,) = [each for each in envelopes_of(tenant) if each["type"] == "batch.completed"]
    assert shape_of_times(named_as(made, example)) == shape_of_times(example)


def test_every_field_of_the_upstream_stands_in_the_table() -> None:
    table = PAGE.split("## Which field")[1].split("\n## ")[0]
    named = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    )
    assert named - {"upstream"} == set(FIELDS)
