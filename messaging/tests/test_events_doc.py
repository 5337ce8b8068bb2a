"""docs/events.md: an envelope of each event type, equal to what the code makes of the same cause."""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.upstream.notifications.normalise import FIELDS
from gateway.upstream.tests.notifications import BODIES, drafts_of
from messaging import sending
from messaging.batches import lease
from messaging.models import Batch
from messaging.tests.incoming import envelopes_of, number_of, post
from phone_numbers import connection, lookup
from phone_numbers.models import BusinessAccount
from phone_numbers.tests.conftest import verified_endpoint
from tenants.models import Tenant
from webhooks.events.types import EVENT_TYPES

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
OWN = {"message.outbound", "batch.completed", "number.connection", "token.expiring", "token.invalid"}
WABA, NUMBER, DIGITS = "100200300400500", "200300400500600", "919800000001"


def test_there_is_an_example_of_each_type_in_the_order_of_the_specification() -> None:
    assert list(EXAMPLES) == list(EVENT_TYPES)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_the_members_are_the_specifications_in_its_order(kind: str) -> None:
    example = EXAMPLES[kind]
    assert list(example) == ENVELOPE
    assert example["type"] == kind
    assert (example["raw"] is None) is (example["raw_path"] is None) is (kind in OWN)


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_the_services_own_events(tenant: Tenant) -> None:
    verified_endpoint(tenant)
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER, digits=DIGITS)
    connection.recompute(tenant_id=tenant.id)
    tell: dict[str, Any] = EXAMPLES["account.update"]["raw"]
    assert post(json.dumps(tell).encode()).status_code == 200
    BusinessAccount.objects.update(token_expires_at=EXAMPLES["token.expiring"]["data"]["expires_at"])
    connection.token_expiring(BusinessAccount.objects.get(), days=7)
    BusinessAccount.objects.update(token_expires_at=None)
    connection.token_failed(waba_id=WABA)
    batch = EXAMPLES["batch.completed"]["data"]
    lease.complete(
        Batch.objects.create(
            tenant=tenant,
            environment="live",
            phone_number_id=NUMBER,
            **{name: batch[name] for name in ("total", "accepted", "failed", "rate_per_sec", "client_ref")},
        )
    )
    made = {each["type"]: each for each in envelopes_of(tenant)}
    for kind in OWN - {"message.outbound"}:
        example = EXAMPLES[kind]
        ids = {
            name for name in ("id", "created_at", "started_at", "completed_at") if kind == "batch.completed"
        }
        assert list(made[kind]["data"]) == list(example["data"]), kind
        assert {k: v for k, v in made[kind]["data"].items() if k not in ids} == {
            k: v for k, v in example["data"].items() if k not in ids
        }
        for member in (
            "waba_id",
            "phone_number_id",
            "display_phone_number",
            "wamid",
            "wa_id",
            "raw",
            "raw_path",
        ):
            assert made[kind][member] == example[member], (kind, member)
        pattern = re.sub(r"[0-9a-f]{12}$|bat_\w+|:\d+$", "", example["dedupe_key"])
        assert made[kind]["dedupe_key"].startswith(pattern.removesuffix(":")), kind


@pytest.mark.django_db
def test_a_sent_message(tenant: Tenant) -> None:
    number_of(tenant, waba_id=WABA, phone_number_id=NUMBER, digits=DIGITS)
    sender = lookup.sender(tenant_id=tenant.id, environment="live", from_=NUMBER)
    assert sender is not None
    example = EXAMPLES["message.outbound"]
    event = sending.outbound_event(
        number=sender,
        sent=orjson.dumps(example["data"]["request"]),
        response=orjson.dumps(example["data"]["response"]),
        http_status=example["data"]["http_status"],
    )
    assert event.data == orjson.dumps(example["data"])
    for member in (
        "waba_id",
        "phone_number_id",
        "display_phone_number",
        "wamid",
        "wa_id",
        "user_id",
        "dedupe_key",
    ):
        assert getattr(event, member) == example[member], member


def test_every_field_of_the_upstream_stands_in_the_table() -> None:
    table = PAGE.split("## Which field")[1].split("\n## ")[0]
    named = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    )
    assert named - {"upstream"} == set(FIELDS)
