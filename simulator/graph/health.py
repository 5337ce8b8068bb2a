"""`health_status` of numbers and accounts: the entities on which a send depends, each with its limits and blocks."""

from collections.abc import Iterable
from typing import Any

from simulator.errors import CATALOGUE
from simulator.graph.dispatch import Call
from simulator.world.records import HEALTH_STATES, Account, Number

_LIMITS = {
    "PHONE_NUMBER": "The display name is not approved yet. The number reaches more customers once it is.",
    "WABA": "The account sends few messages a day until its quality improves.",
    "BUSINESS": "The business has not passed the verification.",
    "APP": "The app is in development mode and reaches its testers alone.",
}
_BLOCKS = {
    "PHONE_NUMBER": (133010, "Register the number."),
    "WABA": (131042, "Add a valid payment method to the account."),
    "BUSINESS": (368, "Look at the business's policy violations and ask for a review."),
    "APP": (200, "Let the app's owner solve the required actions of the app."),
}


def of_number(call: Call, number: Number) -> dict[str, Any]:
    """The health of a number, and the health of its account, its business and the app."""
    account = call.sim.state.accounts[number.waba_id]
    own = "AVAILABLE"
    if not number.registered:
        own = "BLOCKED"
    elif number.name_status != "APPROVED":
        own = "LIMITED"
    own = _worst([own, account.health.get("PHONE_NUMBER", "AVAILABLE")])
    return _whole([_entity("PHONE_NUMBER", number.id, own), *_above(call, account)])


def of_account(call: Call, account: Account) -> dict[str, Any]:
    """The health of an account, its business and the app."""
    return _whole(_above(call, account))


def _above(call: Call, account: Account) -> list[dict[str, Any]]:
    ids = {"WABA": account.waba_id, "BUSINESS": account.business_id, "APP": call.sim.config.app_id}
    found = [_entity(kind, ids[kind], account.health.get(kind, "AVAILABLE")) for kind in ids]
    if account.locked:
        found[0] = {
            **found[0],
            "can_send_message": "BLOCKED",
            "errors": [_error(131031, "Ask for a review.")],
        }
    return found


def _entity(kind: str, entity_id: str, state: str) -> dict[str, Any]:
    entity: dict[str, Any] = {"entity_type": kind, "id": entity_id, "can_send_message": state}
    if state == "LIMITED":
        entity["additional_info"] = [_LIMITS[kind]]
    elif state == "BLOCKED":
        entity["errors"] = [_error(*_BLOCKS[kind])]
    return entity


def _error(code: int, solution: str) -> dict[str, Any]:
    _, title = CATALOGUE[code]
    return {"error_code": code, "error_description": title, "possible_solution": solution}


def _whole(entities: list[dict[str, Any]]) -> dict[str, Any]:
    worst = _worst(entity["can_send_message"] for entity in entities)
    return {"can_send_message": worst, "entities": entities}


def _worst(states: Iterable[str]) -> str:
    return max(states, key=HEALTH_STATES.index)
