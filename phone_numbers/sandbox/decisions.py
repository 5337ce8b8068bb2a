"""What the upstream decides in a test world: statuses of messages, templates, numbers.

The simulator is told the tenant's own account with each decision, and refuses what belongs to another.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from gateway.api.errors import InvalidRequest, NotFound
from gateway.upstream import sandbox
from phone_numbers.sandbox import world
from phone_numbers.sandbox_identity import waba_id_of


def set_status(tenant_id: UUID, *, message_id: str, status: str, code: int | None = None) -> dict[str, Any]:
    """Set the status of a sent message. Raises NotFound for a message of another world, InvalidRequest."""
    if code is not None and status != "failed":
        raise InvalidRequest.of(code="Belongs to the status `failed`.")
    body: dict[str, Any] = {"status": status} | ({} if code is None else {"code": code})
    return _decide(tenant_id, f"messages/{quote(message_id, safe='')}/status", body, "sent message")


def decide_template(tenant_id: UUID, *, template_id: str, **decision: str) -> dict[str, Any]:
    """Decide about a template. Raises NotFound for a template of another world."""
    return _decide(tenant_id, f"templates/{quote(template_id, safe='')}", decision, "template")


def decide_number(tenant_id: UUID, *, event: str, phone_number_id: str | None = None) -> dict[str, Any]:
    """Decide about a number. Raises NotFound for a number of another world."""
    number = world.number_of(tenant_id, phone_number_id)
    return _decide(tenant_id, f"phone_numbers/{number.phone_number_id}/events", {"event": event}, "number")


def _decide(tenant_id: UUID, path: str, body: Mapping[str, Any], what: str) -> dict[str, Any]:
    answer = sandbox.control("POST", path, json={**body, "waba_id": waba_id_of(tenant_id)})
    if answer.status == 404:
        raise NotFound(f"There is no such {what} in your test world.")
    return sandbox.accepted(answer)
