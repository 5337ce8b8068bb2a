"""The tools that agents are offered: what each is for, what it takes, and the calls of `/v1` that it makes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.guides import documentation
from messaging.agents.api_calls import ApiCalls

Arguments = Mapping[str, Any]
Schema = dict[str, Any]

MOST_RECIPIENTS = 1_000
MOST_ITEMS = 50
SHOWN_SECTIONS = 5
SHOWN_CHARACTERS = 2_000
SHOWN_ENDPOINTS = 5
MOST_PAGES = 5
"""Of deliveries, that one answer looks through."""


@dataclass(frozen=True, kw_only=True)
class AgentTool:
    """One tool. `run` gets arguments that fit the schema, and raises `Refused` where the API refuses."""

    name: str
    description: str
    properties: Schema
    required: tuple[str, ...] = ()
    changes: bool = False
    run: Callable[[ApiCalls, Arguments], Any]

    @property
    def schema(self) -> Schema:
        """The JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }


def _text(description: str, longest: int = 255) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": description}


_LIMIT: Schema = {
    "type": "integer",
    "minimum": 1,
    "maximum": MOST_ITEMS,
    "description": "How many, 20 if left out.",
}
_FROM = _text("From when on, in ISO 8601, e.g. 2026-11-22T09:00:00Z.", 40)
_TO = _text("Until when, in ISO 8601.", 40)
_CONFIRM: Schema = {"type": "boolean", "description": "True to do it. Ask the person first."}
_TYPES: Schema = {"type": "array", "items": _text("An event type."), "maxItems": 30}


def _search_docs(api: ApiCalls, given: Arguments) -> Any:
    found = documentation.search(given["question"], most=SHOWN_SECTIONS)
    return {
        "sections": [
            {"guide": f"guide:///{each.guide}", "heading": each.heading, "text": each.text[:SHOWN_CHARACTERS]}
            for each in found
        ]
    }


def _send_message(api: ApiCalls, given: Arguments) -> Any:
    recipients: list[str] = list(dict.fromkeys(given["to"]))
    content = dict(given["message"])
    if len(recipients) > 1 and not given.get("confirm"):
        return {
            "sent": False,
            "recipients": len(recipients),
            "environment": api.environment,
            "what_to_do": "Ask the person whether all of them shall get it, then call again with confirm: true.",
        }
    number = given.get("from") or _only_number(api)
    addressed = [_addressed(recipient, content) for recipient in recipients]
    key = given["idempotency_key"]
    if len(recipients) == 1:
        sent = api.send({"from": number, **addressed[0]}, idempotency_key=key)
        return {"environment": api.environment, "answer": sent}
    body = {"from": number, "client_ref": f"mcp:{api.environment}:{key}", "messages": addressed}
    return {"environment": api.environment, "batch": api.post("batches", body=body)}


def _addressed(recipient: str, content: Arguments) -> dict[str, Any]:
    is_number = recipient.removeprefix("+").isdigit()
    return {**content, ("to" if is_number else "recipient"): recipient}


def _only_number(api: ApiCalls) -> str | None:
    """The number that sends when none is named; without one connected number the API asks for it."""
    listed = api.get("numbers")["data"]
    connected = [each["phone_number_id"] for each in listed if each["connection_state"] == "connected"]
    return connected[0] if len(connected) == 1 else None


def _get_message(api: ApiCalls, given: Arguments) -> Any:
    return api.get("message", {"message_id": given["message_id"]})


def _find_messages(api: ApiCalls, given: Arguments) -> Any:
    return api.get("messages", **{"limit": 20, **given})


def _find_events(api: ApiCalls, given: Arguments) -> Any:
    return api.get("events", **{"limit": 20, **given})


def _get_event(api: ApiCalls, given: Arguments) -> Any:
    return api.get("event", {"event_id": given["event_id"]})


def _why_endpoint_fails(api: ApiCalls, given: Arguments) -> Any:
    """An endpoint's health and its newest failed attempts; without an id, of each of the newest endpoints."""
    if "endpoint_id" in given:
        return {"endpoints": [_diagnosis(api, given["endpoint_id"])]}
    listed = api.get("webhooks", limit=SHOWN_ENDPOINTS)["data"]
    return {"endpoints": [_diagnosis(api, each["id"]) for each in listed]}


def _diagnosis(api: ApiCalls, endpoint_id: str) -> Any:
    endpoint = api.get("webhook", {"endpoint_id": endpoint_id})
    newest = [
        delivery
        for status in ("failed", "dead")
        for delivery in _newest_deliveries(api, endpoint_id=endpoint_id, status=status)
    ]
    attempts = api.get("webhook-delivery", {"delivery_id": newest[0]["id"]})["attempt_log"] if newest else []
    return {
        "why": _why(endpoint),
        "endpoint": endpoint,
        "failed_deliveries": newest,
        "newest_attempts": attempts[-3:],
    }


def _newest_deliveries(api: ApiCalls, **filters: Any) -> list[Any]:
    """The newest deliveries that match: behind many others they are on a later page, while the first ones are empty."""
    for _ in range(MOST_PAGES):
        page = api.get("webhook-deliveries", **filters, limit=3)
        if page["data"] or page["next_cursor"] is None:
            break
        filters["cursor"] = page["next_cursor"]
    found: list[Any] = page["data"]
    return found


def _why(endpoint: Any) -> str:
    """The endpoint's state and health as a sentence: the cause even where no failed delivery is shown."""
    health = endpoint["health"]
    reason = health["reason"] or {"error": None, "http_status": None}
    cause = f"HTTP {reason['http_status']}" if reason["http_status"] else reason["error"]
    waiting = f"{health['waiting']['count']} deliveries wait"
    if endpoint["status"] != "active":
        return f"The endpoint is {endpoint['status']}, so nothing is sent to it; {waiting}."
    if health["state"] == "healthy":
        return f"The last attempt succeeded; {waiting}."
    failed = f"It has failed since {health['since']}" + (f", the last time with {cause}." if cause else ".")
    if health["retry_at"] is None:
        return f"{failed} No attempt is planned; {waiting}."
    planned = "Nothing is sent before" if health["state"] == "circuit_open" else "The next attempt is at"
    return f"{failed} {planned} {health['retry_at']}; {waiting}."


def _replay(api: ApiCalls, given: Arguments) -> Any:
    wanted = {name: value for name, value in given.items() if name not in {"endpoint_id", "confirm"}}
    path = {"endpoint_id": given["endpoint_id"]}
    if given.get("confirm"):
        return api.post("webhook-replay", path, body=wanted)
    preview = api.post("webhook-replay", path, body={**wanted, "preview": True})
    told = "Nothing was queued. Tell the person how much it is, then call again with confirm: true."
    return {"preview": preview, "what_to_do": told}


def _list_templates(api: ApiCalls, given: Arguments) -> Any:
    return api.get("templates", **{"limit": 20, **given})


def _numbers_health(api: ApiCalls, given: Arguments) -> Any:
    if "phone_number_id" in given:
        return api.get("number-health", {"phone_number_id": given["phone_number_id"]})
    return api.get("numbers")


def _write_as_test_customer(api: ApiCalls, given: Arguments) -> Any:
    return api.post("test-inbound", body=given)


TOOLS: tuple[AgentTool, ...] = (
    AgentTool(
        name="search_docs",
        description="Find sections of this service's documentation: how to send, webhooks, errors, batches.",
        properties={"question": _text("Words to look for.", 400)},
        required=("question",),
        run=_search_docs,
    ),
    AgentTool(
        name="send_message",
        description="Send a WhatsApp message. With a test key it goes to the simulated test world; with a live key it "
        "reaches real people, so ask first. More than one recipient needs confirm: true.",
        properties={
            "to": {
                "type": "array",
                "items": _text("A phone number with country code, or a business-scoped user id.", 100),
                "minItems": 1,
                "maxItems": MOST_RECIPIENTS,
            },
            "message": {
                "type": "object",
                "required": ["type"],
                "not": {"anyOf": [{"required": ["to"]}, {"required": ["recipient"]}, {"required": ["from"]}]},
                "description": 'The message without its address, e.g. {"type": "text", "text": {"body": "Hello"}} or '
                '{"type": "template", "template": {"name": "order", "language": {"code": "en"}}}.',
            },
            "from": _text("The sending number's id; left out where there is only one.", 64),
            "idempotency_key": _text(
                "Your own name of this sending: repeating the call with it within 24 hours sends nothing twice.",
                200,
            ),
            "confirm": _CONFIRM,
        },
        required=("to", "message", "idempotency_key"),
        changes=True,
        run=_send_message,
    ),
    AgentTool(
        name="get_message",
        description="One message with its timeline: sent, delivered, read or failed, when, and why.",
        properties={"message_id": _text("Its wamid, or the id of a list.", 512)},
        required=("message_id",),
        run=_get_message,
    ),
    AgentTool(
        name="find_messages",
        description="Find messages, the newest first: by status, direction, customer or time.",
        properties={
            "status": {"enum": ["accepted", "unknown", "received", "sent", "delivered", "read", "failed"]},
            "direction": {"enum": ["inbound", "outbound"]},
            "wa_id": _text("The customer's phone number in digits.", 32),
            "from": _FROM,
            "to": _TO,
            "limit": _LIMIT,
        },
        run=_find_messages,
    ),
    AgentTool(
        name="find_events",
        description="Find events of the event log, the newest first: by type, message, customer or time.",
        properties={
            "type": _text("For example message.inbound."),
            "wamid": _text("Of this message.", 512),
            "wa_id": _text("Of this customer: the phone number in digits.", 32),
            "from": _FROM,
            "to": _TO,
            "limit": _LIMIT,
        },
        run=_find_events,
    ),
    AgentTool(
        name="get_event",
        description="One event with its body and its deliveries.",
        properties={"event_id": _text("evt_…", 64)},
        required=("event_id",),
        run=_get_event,
    ),
    AgentTool(
        name="why_is_endpoint_failing",
        description="Why a webhook endpoint fails, in a sentence; its health, its newest failed deliveries, and what "
        "the receiver answered.",
        properties={"endpoint_id": _text("The endpoint; left out: the newest ones.", 64)},
        run=_why_endpoint_fails,
    ),
    AgentTool(
        name="replay_deliveries",
        description="Send an endpoint again what it missed. Without confirm: true it only says how much that is.",
        properties={
            "endpoint_id": _text("The endpoint.", 64),
            "from": _FROM,
            "to": _TO,
            "status": {"type": "array", "items": {"enum": ["failed", "dead", "delivered", "missed"]}},
            "event_types": _TYPES,
            "confirm": _CONFIRM,
        },
        required=("endpoint_id", "from", "to"),
        changes=True,
        run=_replay,
    ),
    AgentTool(
        name="list_templates",
        description="Message templates with their approval and quality.",
        properties={
            "name": _text("Of this name.", 512),
            "status": _text("For example APPROVED.", 40),
            "language": _text("For example en.", 20),
            "limit": _LIMIT,
        },
        run=_list_templates,
    ),
    AgentTool(
        name="numbers_health",
        description="The phone numbers and how they are; with an id, whether that one can send and what is against it.",
        properties={"phone_number_id": _text("One number.", 64)},
        run=_numbers_health,
    ),
    AgentTool(
        name="write_as_test_customer",
        description="With a test key: a customer of the test world writes to you, and the events come as they do live.",
        properties={
            "from": _text("The customer's phone number.", 32),
            "text": _text("What the customer writes.", 4_096),
            "type": _text("Another type than text, e.g. image.", 40),
        },
        required=("from",),
        changes=True,
        run=_write_as_test_customer,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
