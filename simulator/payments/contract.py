"""Razorpay's documented contract (`contract.json`): the members of requests and of entities.

The simulated provider rejects members that a call's documentation does not name, and its answers have every documented
member of an entity. Tests of the service's client read the same file. So client and simulator both agree with
Razorpay's documentation.
"""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
CONTRACT: Row = json.loads(Path(__file__).with_name("contract.json").read_text())
_EMPTY: Row = {"integer": 0, "string": "", "boolean": False, "object": {}, "list": []}


class UnfitRequest(ValueError):
    """A request that contradicts its documentation. The error has the provider's description and the member's name."""

    def __init__(self, description: str, field: str) -> None:
        super().__init__(description)
        self.field = field


def check_request(call: str, body: Row) -> None:
    """Raise UnfitRequest for an undocumented member, a missing member, or an amount below the minimum."""
    _check(CONTRACT["calls"][call].get("body", {}), body, "")


def _check(members: Row, body: Row, prefix: str) -> None:
    known = {name.removesuffix("?"): (kind, name.endswith("?")) for name, kind in members.items()}
    if unknown := [name for name in body if name not in known]:
        raise UnfitRequest(f"{', '.join(unknown)} is/are not required and should not be sent", unknown[0])
    for name, (kind, optional) in known.items():
        if name not in body:
            if not optional:
                raise UnfitRequest(f"The {prefix}{name} field is required.", name)
        elif isinstance(kind, dict):
            if not isinstance(body[name], dict):
                raise UnfitRequest(f"The {name} must be an object.", name)
            _check(kind, body[name], f"{name}.")
        else:
            _check_value(name, str(kind), body[name])


def _check_value(name: str, kind: str, value: Any) -> None:
    wanted, _, least = kind.partition(">=")
    types: dict[str, type] = {"integer": int, "string": str, "boolean": bool, "object": dict}
    if not isinstance(value, types[wanted]) or (wanted == "integer" and isinstance(value, bool)):
        raise UnfitRequest(f"The {name} must be of type {wanted}.", name)
    if least and int(str(value)) < int(least):
        raise UnfitRequest(f"The {name} must be at least INR {int(least) / 100:.2f}", name)


def entity(name: str, **known: Any) -> Row:
    """An entity with all members that are always present. Members that are not in `known` are null if the contract
    allows it, otherwise empty.
    """
    made: Row = {}
    for member, kind in CONTRACT["entities"][name]["members"].items():
        if not member.endswith("?"):
            made[member] = None if isinstance(kind, str) and kind.endswith("|null") else _empty(kind)
    return {**made, **({"entity": name} if "entity" in made else {}), **known}


def _empty(kind: Any) -> Any:
    return {} if isinstance(kind, dict) else type(_EMPTY[kind])(_EMPTY[kind])
