"""Schemas of Meta's own bodies for the OpenAPI document: messages, media, templates, profiles.

A postprocessing hook of drf-spectacular. `bodies.yaml` has the schemas and assigns them to operations. A message is a
union over `type`: this module joins the common members of messages with the content of each type.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

Json = dict[str, Any]

_SOURCE: Json = yaml.safe_load(Path(__file__).with_name("bodies.yaml").read_text())
OPERATIONS: dict[str, dict[str, str]] = _SOURCE["operations"]
MESSAGE_TYPES: dict[str, str] = _SOURCE["message_types"]
"""The schema of the content of each `type` of outgoing message."""

JSON_BODY = "application/json"
PLACEHOLDERS = {
    "$FROM": "200300400500600",
    "$MEDIA_ID": "510000000000001",
    "$WAMID": "wamid.HBgMOTE5ODEyMzQ1Njc4FQIAEhgg01",
}
"""Placeholders in the examples of docs/sending.md, and the values that replace them in the document."""


def reference(name: str) -> Json:
    """A reference to a schema of the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def opened(schema: Any) -> Any:
    """The schema with every object marked as open, unless the object declares otherwise."""
    if isinstance(schema, list):
        return [opened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: opened(part) for name, part in schema.items()}
    kind = made.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        made.setdefault("additionalProperties", True)
    return made


def discriminated(names: dict[str, str], description: str) -> Json:
    """A union of schemas, with their `type` as the discriminator."""
    return {
        "description": description,
        "oneOf": [reference(name) for name in names.values()],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: f"#/components/schemas/{name}" for kind, name in names.items()},
        },
    }


def schemas() -> Json:
    """All schemas of Meta's bodies by name."""
    made: Json = {name: opened(schema) for name, schema in _SOURCE["schemas"].items()}
    address = made.pop("MessageAddress")
    messages, scheduled, items = {}, {}, {}
    for kind, content in MESSAGE_TYPES.items():
        messages[kind] = f"{kind.capitalize()}Message"
        scheduled[kind] = f"Scheduled{kind.capitalize()}Message"
        items[kind] = f"Batch{kind.capitalize()}Message"
        made[messages[kind]] = _message(kind, content, address, required=["from", "type", kind])
        later = _message(kind, content, address, required=["from", "type", kind])
        later["properties"]["send_at"] = _SOURCE["send_at"]
        later["properties"]["customer_hours"] = reference("CustomerHours")
        made[scheduled[kind]] = later
        item = _message(kind, content, address, required=["type", kind])
        item["properties"]["message_ref"] = _SOURCE["message_ref"]
        made[items[kind]] = item
    made["OutgoingMessage"] = discriminated(
        messages, "A message: the member named like `type` holds its content. Unknown members pass through."
    )
    made["LaterMessage"] = discriminated(scheduled, "A message and its time. Unknown members pass through.")
    made["BatchMessage"] = discriminated(
        items, "A message of a batch. `from` may be left out; another number than the batch's is refused."
    )
    return made


def _message(kind: str, content: str, address: Json, *, required: list[str]) -> Json:
    properties = dict(address["properties"])
    properties["type"] = {"type": "string", "const": kind}
    properties[kind] = reference(content)
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": True}


def typed_bodies(result: Json, **_: Any) -> Json:
    """Postprocessing: give operations with Meta's bodies the schemas of these bodies."""
    result["components"].setdefault("schemas", {}).update(schemas())
    for operations in result["paths"].values():
        for operation in operations.values():
            bodies = OPERATIONS.get(operation["operationId"], {})
            if "request" in bodies:
                body: Json = {"schema": reference(bodies["request"])}
                if examples := _examples(bodies["request"]):
                    body["examples"] = examples
                operation["requestBody"] = {"content": {JSON_BODY: body}, "required": True}
            if "answer" in bodies:
                content = operation["responses"]["200"].setdefault("content", {})
                content[JSON_BODY] = {"schema": reference(bodies["answer"])}
    return result


def _examples(schema: str) -> Json:
    """Find the examples of a schema in docs/sending.md. The test of that page sends them to the simulator."""
    if schema not in {"OutgoingMessage", "ReadMark"}:
        return {}
    text = (settings.BASE_DIR / "docs/sending.md").read_text()
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    found = re.findall(r"^##+ ([^\n]+)\n(?:(?!^##).)*?^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    bodies = {heading: json.loads(block) for heading, block in found}
    return {
        re.sub(r"\W+", "_", heading).lower(): {"summary": heading, "value": body}
        for heading, body in bodies.items()
        if ("type" in body) == (schema == "OutgoingMessage")
    }
