"""The verify ping and example events. These requests to endpoints are not deliveries.

An endpoint must answer the ping's challenge before it gets events. For endpoints with envelopes, the ping is a signed
POST. For endpoints with Meta's format, it is Meta's handshake. An example event of any type is marked as a test, and is
neither stored nor counted.
"""

import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from cryptography.fernet import InvalidToken

from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest, ServiceError
from gateway.clock import isoformat, now
from gateway.monitoring.logs import type_alone
from gateway.outbound.client import Answer
from webhooks.events.envelope import Envelope
from webhooks.models import Endpoint
from webhooks.requests import cloud_api_form, signed_request
from webhooks.requests.credentials import call_once
from webhooks.templatetags.delivery_errors import in_words, repair

PING_TYPE = "webhook.verify"
EXCERPT_CHARACTERS = 500
VERIFY_SECONDS = 5.0
"""Time limit for an endpoint's answer, in seconds."""
VERIFY, CHANGE = "POST /v1/webhooks/{endpoint_id}/verify", "PATCH /v1/webhooks/{endpoint_id} again"
"""What to do after repairing an endpoint whose ping failed: a ping of its stored values, or the change that failed."""
_ANSWER = "Answer 2xx within 5 seconds with the body's `challenge`, then {again}."


class WebhookVerifyFailed(ServiceError):
    status = 422
    code = "webhook_verify_failed"
    message = "The endpoint did not answer the verify ping with its challenge."
    hint = _ANSWER.format(again=VERIFY)
    repeat = "after repairing the endpoint"


_NOT_PUBLIC = (
    "Events go only to public addresses. To get them on your own computer, run "
    "`whabuzz listen --forward-to localhost:3000`, or give the https address of a tunnel."
)
_NOT_REACHED = (
    "Nothing answered at the url. The endpoint exists: start your server with the signing secret, answer the body's "
    "`challenge`, then {again}."
)


@dataclass(frozen=True, slots=True)
class Ping:
    """The result of a verify ping."""

    passed: bool
    http_status: int | None
    response_ms: int
    error: str | None
    body_excerpt: str

    def __repr__(self) -> str:
        return type_alone(self)


def passed(endpoint: Endpoint, *, again: str = VERIFY) -> Ping:
    """Ping an endpoint with its values in memory, saved or not. Raises WebhookVerifyFailed if the ping fails.

    `again` is `VERIFY`, or `CHANGE` for values that are not saved.
    """
    answer = handshake(endpoint) if endpoint.format == Endpoint.Format.META else ping(endpoint)
    if not answer.passed:
        raise WebhookVerifyFailed(
            None
            if endpoint.kind == Endpoint.Kind.WEBHOOK
            else "The destination did not accept the verify message.",
            hint=_hint(endpoint, answer, again),
            details={
                "endpoint_id": endpoint.id,
                "http_status": answer.http_status,
                "response_ms": answer.response_ms,
                "error": answer.error,
                "body_excerpt": answer.body_excerpt,
            },
        )
    return answer


def _hint(endpoint: Endpoint, answer: Ping, again: str) -> str:
    if endpoint.kind != Endpoint.Kind.WEBHOOK:
        return f"`error` and `body_excerpt` say why. Repair its settings or permissions, then {again}."
    if answer.error == "blocked_address":
        return _NOT_PUBLIC
    if answer.error == "connection_error":
        return _NOT_REACHED.format(again=again)
    if not (advice := repair(answer.error)):
        return _ANSWER.format(again=again)
    problem = in_words(answer.error)
    return f"{problem[0].upper()}{problem[1:]}. {advice} Then {again}."


def handshake(endpoint: Endpoint) -> Ping:
    """Send the challenge in a GET request, as Meta does (upstream fact 3.1). Passes with a 2xx whose text is the
    challenge. Raises Conflict if the endpoint's verify token cannot be read.
    """
    target = signed_request.target_of(endpoint, at=now())
    try:
        token = endpoint.verify_token or ""
    except InvalidToken:
        raise Conflict("The endpoint's verify token cannot be read: set it again.") from None
    # Digits, because some libraries parse the challenge as a number.
    challenge = str(secrets.randbelow(9 * 10**9) + 10**9)
    asked = {
        "hub.mode": "subscribe",
        "hub.verify_token": token,
        "hub.challenge": challenge,
    }
    answer = call_once(
        endpoint.id,
        target.credentials,
        f"{target.url}{'&' if '?' in target.url else '?'}{urlencode(asked)}",
        None,
        {**dict(target.headers), "User-Agent": signed_request.user_agent()},
        total_timeout=VERIFY_SECONDS,
    )
    return _ping_of(answer, answer.body.strip() == challenge.encode())


def ping(endpoint: Endpoint) -> Ping:
    """POST a signed challenge. Passes with a 2xx within 5 seconds that contains the challenge, as text or as JSON.

    A destination gets the challenge as a message, and passes when it has stored the message.
    """
    challenge = secrets.token_urlsafe(24)
    body = orjson.dumps({"type": PING_TYPE, "challenge": challenge})
    target = signed_request.target_of(endpoint, at=now())
    answer = _post(endpoint, target, body, message_id=ids.encode("ping_", ids.uuid7()), event_type=PING_TYPE)
    # A destination only confirms that it has stored the message.
    return _ping_of(answer, target.credentials.destination is not None or _carries(answer, challenge))


def _post(
    endpoint: Endpoint,
    target: signed_request.Target,
    body: bytes,
    *,
    message_id: str,
    event_type: str,
    **more: str,
) -> Answer:
    """POST a body that is not a delivery but is signed like one. `more` has additional headers."""
    headers = signed_request.headers(
        keys=target.keys,
        hub_key=target.hub_key,
        message_id=message_id,
        timestamp=int(now().timestamp()),
        body=body,
        event_type=event_type,
        custom=target.headers,
        signing_key=target.credentials.signing_key,
    )
    return call_once(
        endpoint.id, target.credentials, target.url, body, headers | more, total_timeout=VERIFY_SECONDS
    )


def _ping_of(answer: Answer, has_challenge: bool) -> Ping:
    has_passed = answer.ok and has_challenge
    return Ping(
        passed=has_passed,
        http_status=answer.status,
        response_ms=answer.ms,
        error=answer.error or (None if has_passed else "wrong_answer"),
        body_excerpt=answer.body.decode("utf-8", "replace")[:EXCERPT_CHARACTERS],
    )


def _carries(answer: Answer, challenge: str) -> bool:
    if answer.body.strip() == challenge.encode():
        return True
    try:
        value = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and value.get("challenge") == challenge


TEST_HEADER = "X-Service-Test"


@dataclass(frozen=True, slots=True)
class SentExample:
    """An example event in the form that was sent, and the endpoint's answer."""

    event: dict[str, Any]
    delivered: bool
    http_status: int | None
    response_ms: int
    error: str | None
    body_excerpt: str

    def __repr__(self) -> str:
        return type_alone(self)


def send_example(endpoint: Endpoint, *, event_type: str) -> SentExample:
    """POST an example of an event type, signed like a delivery. The answer must come within 5 seconds."""
    event_id = ids.uuid7()
    public_id = ids.encode(ids.EVENT, event_id)
    event = {
        **_examples()[event_type],
        "id": public_id,
        "created_at": isoformat(ids.created_at(event_id)),
        "tenant_id": str(endpoint.tenant_id),
        "dedupe_key": f"test:{public_id}",
        "test": True,
    }
    target = signed_request.target_of(endpoint, at=now())
    if target.hub_key is not None:
        event = _in_upstream_form(event)
    is_batch = target.takes_several and not target.archives
    body = orjson.dumps({"type": signed_request.BATCH_TYPE, "events": [event]} if is_batch else event)
    answer = _post(
        endpoint,
        target,
        body,
        message_id=public_id,
        event_type=signed_request.BATCH_TYPE if is_batch else event_type,
        **{TEST_HEADER: "true"},
    )
    return SentExample(
        event=event,
        delivered=answer.ok,
        http_status=answer.status,
        response_ms=answer.ms,
        error=answer.error,
        body_excerpt=answer.body.decode("utf-8", "replace")[:EXCERPT_CHARACTERS],
    )


def _in_upstream_form(event: dict[str, Any]) -> dict[str, Any]:
    """An example in Meta's format. Raises InvalidRequest for the service's own events."""
    if event["raw_path"] is None:
        raise InvalidRequest.of(event_type="Endpoints with `format: meta` get only Meta's own events.")
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
    """The examples of docs/events.md by type. A test checks that the page and `examples.json` agree."""
    examples: dict[str, Any] = orjson.loads(
        (Path(__file__).parents[1] / "events" / "examples.json").read_bytes()
    )
    return examples
