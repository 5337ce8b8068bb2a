"""Health of a number: what the upstream says of each entity that a message passes, with reasons and remedies.

The upstream's `health_status` is a list of entities (number, business account, business, app), each AVAILABLE, LIMITED
(with `additional_info`) or BLOCKED (with `errors`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.clock import now
from phone_numbers.graph_calls import graph_of
from phone_numbers.models import PhoneNumber
from phone_numbers.tokens import accepted_for


def read(number: PhoneNumber) -> dict[str, Any]:
    """Ask the upstream for a number's health. Raises Refused and UpstreamUnreachable."""
    view = accepted_for(number.account, graph_of(number.account).number(number.phone_number_id)).json()
    status = view.get("health_status")
    status = status if isinstance(status, Mapping) else {}
    return {
        "phone_number_id": number.phone_number_id,
        "connection_state": number.connection_state,
        "connection_detail": number.connection_detail,
        "can_send_message": _text(status.get("can_send_message")),
        "entities": [
            {
                "entity_type": _text(entity.get("entity_type")),
                "id": _text(entity.get("id")),
                "can_send_message": _text(entity.get("can_send_message")),
                "reasons": [*_errors(entity), *_limits(entity)],
            }
            for entity in _objects(status.get("entities"))
        ],
        "checked_at": now(),
    }


def _errors(entity: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for error in _objects(entity.get("errors")):
        code = error.get("error_code")
        yield {
            "code": code if isinstance(code, int) else None,
            "description": _text(error.get("error_description")),
            "what_to_do": _text(error.get("possible_solution")),
        }


def _limits(entity: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    info = entity.get("additional_info")
    for text in info if isinstance(info, list) else []:
        yield {"code": None, "description": _text(text), "what_to_do": None}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
