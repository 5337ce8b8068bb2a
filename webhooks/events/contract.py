"""The events that tenants receive, for the OpenAPI document: a schema and a webhook for each event type.

This is a postprocessing hook of drf-spectacular. A schema is the envelope with one `type` and the `data` of that type,
from `data.yaml`. The examples come from docs/events.md. New event types are included automatically.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gateway.upstream.contract.bodies import JSON_BODY, discriminated, opened, reference
from webhooks.events.envelope import EVENT_TYPES

Json = dict[str, Any]

ENVELOPE = "EnvelopeOut"
"""The component of `webhooks.views.EnvelopeOut`. The schemas of the event types replace it."""
PING = "VerifyPing"
HEADERS = {
    "webhook-id": "The id of the event. It is the same in every attempt and replay.",
    "webhook-timestamp": "The time of this attempt, in seconds since 1970.",
    "webhook-signature": "`v1,<base64>` for each secret that is in force. Several are separated by spaces.",
}


NEVER_NULL = {
    "message.inbound": ("phone_number_id", "wamid"),
    "message.status": ("phone_number_id", "wamid"),
    "message.echo": ("phone_number_id", "wamid"),
    "message.outbound": ("phone_number_id",),
}
"""Members of the envelope that are never null for these types. WhatsApp gives them, or the service knows them."""


def schema_name(event_type: str) -> str:
    """The name of an event type's schema: `message.inbound` → `MessageInboundEvent`."""
    return "".join(word.capitalize() for word in event_type.replace("_", ".").split(".")) + "Event"


@cache
def _source() -> tuple[Json, Json]:
    """The schemas in `data.yaml`, and an example of each event type."""
    folder = Path(__file__).parent
    return yaml.safe_load((folder / "data.yaml").read_text()), json.loads(
        (folder / "examples.json").read_text()
    )


def typed_events(result: Json, **_: Any) -> Json:
    """Add the section `webhooks`, and replace the untyped envelope by the union `Event`."""
    source, examples = _source()
    components: Json = result["components"]["schemas"]
    envelope = components.pop(ENVELOPE)
    schemas = {**source["schemas"], **_by_kind("InboundMessage", source["schemas"]["InboundMessage"])}
    components.update({name: opened(schema) for name, schema in schemas.items()})
    names = {event_type: schema_name(event_type) for event_type in EVENT_TYPES}
    webhooks: Json = {}
    for event_type, name in names.items():
        components[name] = _event(envelope, event_type, source["data"].get(event_type))
        webhooks[event_type] = _webhook(event_type, name, examples.get(event_type))
    components["Event"] = discriminated(
        names, "An event as it is delivered. `type` determines the form of `data`."
    )
    components["EventType"] = {"type": "string", "enum": list(EVENT_TYPES)}
    components[PING] = {
        "description": "The verify ping. Answer it 2xx with the challenge, as plain text or as "
        '`{"challenge": "…"}`.',
        "type": "object",
        "required": ["type", "challenge"],
        "properties": {
            "type": {"type": "string", "const": "webhook.verify"},
            "challenge": {"type": "string"},
        },
        "additionalProperties": True,
    }
    webhooks["webhook.verify"] = _webhook(
        "webhook.verify", PING, {"type": "webhook.verify", "challenge": "chl"}
    )
    components["OneEventOut"]["properties"]["event"] = {"oneOf": [reference("Event"), {"type": "null"}]}
    result["webhooks"] = webhooks
    return result


OTHER_KINDS = ("edit", "revoke", "request_welcome", "unsupported", "unknown")
"""Types of messages that have no schema of their own. Meta adds more."""


def _by_kind(name: str, schema: Json) -> Json:
    """Build a union of schemas. Each kind in `x-kinds` has a schema that requires the member with the kind's name. All
    other kinds share one schema.
    """
    kinds = schema["x-kinds"]
    shared = {member: value for member, value in schema["properties"].items() if member not in kinds}
    union = {}
    for kind in kinds:
        properties = {**shared, "type": {"type": "string", "const": kind}, kind: schema["properties"][kind]}
        required = [*schema["required"], kind]
        union[f"Inbound{kind.capitalize()}Message"] = {
            "type": "object",
            "required": required,
            "properties": properties,
        }
    other = {"type": "string", "not": {"enum": kinds}, "examples": list(OTHER_KINDS)}
    union["OtherInboundMessage"] = {**schema, "properties": {**shared, "type": other}}
    del union["OtherInboundMessage"]["x-kinds"]
    return {
        **union,
        name: {"description": schema["description"], "anyOf": [reference(each) for each in union]},
    }


def _event(envelope: Json, event_type: str, data: str | None) -> Json:
    properties = dict(envelope["properties"])
    properties["type"] = {"type": "string", "const": event_type}
    for name in NEVER_NULL.get(event_type, ()):
        properties[name] = {**properties[name], "type": "string"}
    properties["data"] = reference(data) if data else {"type": "object", "additionalProperties": True}
    return {
        "description": f"The event `{event_type}`.",
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": True,
    }


def _webhook(event_type: str, name: str, example: Json | None) -> Json:
    body: Json = {"schema": reference(name)}
    if example is not None:
        body["examples"] = {"example": {"summary": f"A `{event_type}`", "value": example}}
    whom = (
        "Sent to an endpoint when it is created or verified, whatever event types it receives"
        if event_type == "webhook.verify"
        else "Sent to every active endpoint that receives events of this type"
    )
    return {
        "post": {
            "operationId": "on_" + event_type.replace(".", "_"),
            "summary": f"Receive `{event_type}`",
            "description": f"{whom}. The request is signed as Standard Webhooks requires.",
            "tags": ["Webhooks"],
            "security": [],
            "parameters": [
                {
                    "in": "header",
                    "name": header,
                    "required": True,
                    "schema": {"type": "string"},
                    "description": description,
                }
                for header, description in HEADERS.items()
            ],
            "requestBody": {"required": True, "content": {JSON_BODY: body}},
            "responses": {
                "2XX": {
                    "description": "The endpoint accepts the event. After any other answer, the event is sent again."
                },
                "4XX": {
                    "description": "The endpoint rejects the event, which is sent again. 410 disables the endpoint."
                },
            },
        }
    }
