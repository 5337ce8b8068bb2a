"""Example events: one of any type is sent to an endpoint, marked as a test, and nothing of it is stored or counted."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings

from gateway import ids
from gateway.api.errors import InvalidRequest
from gateway.clock import isoformat, now
from gateway.outbound.client import post_once
from webhooks.events.envelope import Envelope
from webhooks.models import Endpoint
from webhooks.requests import cloud_api_form, signed_request
from webhooks.requests.verify_ping import EXCERPT_CHARACTERS

TEST_HEADER = "X-Service-Test"


@dataclass(frozen=True, slots=True)
class Sent:
    """An example as it was sent, and what the endpoint said to it."""

    event: dict[str, Any]
    delivered: bool
    http_status: int | None
    response_ms: int
    error: str | None
    body_excerpt: str


def send(endpoint: Endpoint, *, event_type: str) -> Sent:
    """POST an example of an event type, signed like a delivery; the answer must come within 5 seconds."""
    at, event_id = now(), ids.uuid7()
    public_id = ids.encode(ids.EVENT, event_id)
    event = {
        **_examples()[event_type],
        "id": public_id,
        "created_at": isoformat(ids.created_at(event_id)),
        "tenant_id": str(endpoint.tenant_id),
        "dedupe_key": f"test:{public_id}",
        "test": True,
    }
    target = signed_request.target_of(endpoint, at=at)
    if target.hub_key is not None:
        event = _in_upstream_form(event)
    body = orjson.dumps(event)
    headers = signed_request.headers(
        keys=target.keys,
        hub_key=target.hub_key,
        message_id=public_id,
        timestamp=int(at.timestamp()),
        body=body,
        event_type=event_type,
        custom=target.headers,
    )
    answer = post_once(
        endpoint.url,
        body,
        {**headers, TEST_HEADER: "true"},
        allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS,
        total_timeout=settings.WEBHOOK_VERIFY_TIMEOUT_MS / 1000,
    )
    return Sent(
        event=event,
        delivered=answer.ok,
        http_status=answer.status,
        response_ms=answer.ms,
        error=answer.error,
        body_excerpt=answer.body.decode("utf-8", "replace")[:EXCERPT_CHARACTERS],
    )


def _in_upstream_form(event: dict[str, Any]) -> dict[str, Any]:
    """An example as the upstream's notification. Raises InvalidRequest for an event of the service itself."""
    if event["raw_path"] is None:
        raise InvalidRequest.of(event_type="Endpoints with `format: meta` get the upstream's events alone.")
    bodies = {name: orjson.dumps(event[name]) for name in ("data", "raw")}
    head = {name: value for name, value in event.items() if name not in {"data", "raw", "raw_path", "test"}}
    stored = Envelope(
        id=event["id"],
        head=orjson.dumps(head),
        data=bodies["data"],
        raw=bodies["raw"],
        raw_path=event["raw_path"],
    )
    notification: dict[str, Any] = orjson.loads(cloud_api_form.notification(stored))
    return notification


@lru_cache(maxsize=1)
def _examples() -> dict[str, Any]:
    """The examples of docs/events.md by type; a test compares both."""
    examples: dict[str, Any] = orjson.loads(
        (Path(__file__).parents[1] / "events" / "examples.json").read_bytes()
    )
    return examples
