"""Groups of a number: create, read, change and delete groups, with their invite links, participants and join requests.

As at Meta, the answer to a command has only a request id, and a notification has the result (upstream fact 3.11).
Simulated customers do not join by themselves. Tests add the participants.
"""

import base64
import secrets
import time
from typing import Any

from simulator.errors import invalid_parameter, no_such_object
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.fields import page
from simulator.graph.schema import Row, chosen, coerced
from simulator.parts import Simulator
from simulator.world.identifiers import digits_of
from simulator.world.records import Number

_LONGEST = {"subject": 128, "description": 2048}


def _groups(sim: Simulator, phone_number_id: str) -> dict[str, Row]:
    return sim.state.objects.setdefault(f"{phone_number_id}/groups", {})


def owner_of(sim: Simulator, group_id: str) -> Number | None:
    """The number to which a group belongs."""
    for number in sim.state.numbers.values():
        if group_id in sim.state.objects.get(f"{number.id}/groups", {}):
            return number
    return None


def _group(call: Call) -> tuple[Number, Row]:
    number = owner_of(call.sim, call.node)
    if number is None:
        raise no_such_object(call.node, call.request.method)
    call.account(number.waba_id)
    return number, _groups(call.sim, number.id)[call.node]


def _notify(call: Call, number: Number, field: str, group: dict[str, Any]) -> None:
    metadata = {"display_phone_number": number.digits, "phone_number_id": number.id}
    stamped = {"timestamp": str(int(time.time())), **group}
    value = {"messaging_product": "whatsapp", "metadata": metadata, "groups": [stamped]}
    call.sim.notifier.publish(waba_id=number.waba_id, field=field, value=value)


def _named(params: dict[str, Any]) -> Row:
    given = {name: str(params[name]) for name in _LONGEST if name in params}
    for name, value in given.items():
        if len(value) > _LONGEST[name]:
            raise invalid_parameter(f"Param {name} must be at most {_LONGEST[name]} characters")
    return given


async def create_group(call: Call) -> Row:
    """POST /{number}/groups: create a group. A notification then reports the group's data."""
    number, params = call.sending_number(), call.params()
    text_of(params, "subject")
    digits = f"capi_group:{number.digits}:{secrets.randbelow(10**18):018d}"
    group_id = base64.urlsafe_b64encode(digits.encode()).decode().rstrip("=")
    group: Row = {
        "id": group_id,
        **_named(params),
        "join_approval_mode": str(params.get("join_approval_mode", "auto_approve")),
        "creation_timestamp": int(time.time()),
        "suspended": False,
        "invite_link": _link(),
        "participants": [],
        "join_requests": [],
    }
    _groups(call.sim, number.id)[group_id] = group
    call.sim.state.changed()
    request_id = secrets.token_hex(8)
    shown: Row = {name: group[name] for name in ("subject", "description", "invite_link") if name in group}
    change: Row = {"group_id": group_id, "type": "group_create", "request_id": request_id, **shown}
    _notify(call, number, "group_lifecycle_update", change)
    return {"messaging_product": "whatsapp", "request_id": request_id}


async def list_groups(call: Call) -> Row:
    """GET /{number}/groups: list the groups."""
    rows = list(_groups(call.sim, call.number().id).values())
    listed = page(
        call,
        rows,
        lambda row: str(row["id"]),
        lambda row: {
            "id": row["id"], "subject": row["subject"], "created_at": str(row["creation_timestamp"]),
        },
    )  # fmt: skip
    return {**listed, "data": {"groups": listed["data"]}}


async def get_group(call: Call) -> Row:
    """GET /{group}: read a group. Without `fields`, the answer has only the id."""
    _, group = _group(call)
    if not call.params().get("fields"):
        return {"messaging_product": "whatsapp", "id": group["id"]}
    shown = {name: value for name, value in group.items() if name not in {"invite_link", "join_requests"}}
    shown["total_participant_count"] = len(group["participants"])
    return {"messaging_product": "whatsapp", "id": group["id"], **chosen(call, shown)}


async def update_group(call: Call) -> Row:
    """POST /{group}: change the subject, the description or the picture."""
    number, group = _group(call)
    changes = _named(call.params())
    group.update(changes)
    call.sim.state.changed()
    request_id = secrets.token_hex(8)
    change: Row = {"group_id": group["id"], "type": "group_settings_update", "request_id": request_id}
    for name, value in changes.items():
        change[f"group_{name}"] = {"text": value, "update_successful": True}
    _notify(call, number, "group_settings_update", change)
    return {"messaging_product": "whatsapp", "request_id": request_id}


async def delete_group(call: Call) -> Row:
    """DELETE /{group}: delete a group."""
    number, group = _group(call)
    del _groups(call.sim, number.id)[group["id"]]
    call.sim.state.changed()
    request_id = secrets.token_hex(8)
    change = {"group_id": group["id"], "type": "group_delete", "request_id": request_id}
    _notify(call, number, "group_lifecycle_update", change)
    return {"messaging_product": "whatsapp", "request_id": request_id}


async def invite_link(call: Call) -> Row:
    """GET, POST and DELETE /{group}/invite_link: read, replace or delete the invite link."""
    _, group = _group(call)
    if call.request.method != "GET":
        group["invite_link"] = _link()
        call.sim.state.changed()
    if call.request.method == "DELETE":
        return {"success": True}
    return {"messaging_product": "whatsapp", "invite_link": group["invite_link"]}


async def participants(call: Call) -> Row:
    """POST and DELETE /{group}/participants: add or remove participants."""
    number, group = _group(call)
    users = coerced("list", "participants", call.params().get("participants"))
    named = [str(user.get("user") or user.get("user_id") or "") for user in users if isinstance(user, dict)]
    if not named or not all(named):
        raise invalid_parameter("Param participants must hold objects with user")
    wa_ids = [digits_of(name) or name for name in named]
    kept = [row for row in group["participants"] if row["wa_id"] not in wa_ids]
    is_added = call.request.method == "POST"
    group["participants"] = kept + [{"wa_id": wa_id} for wa_id in wa_ids] if is_added else kept
    call.sim.state.changed()
    request_id = secrets.token_hex(8)
    rows = [{"wa_id": wa_id, "input": name} for wa_id, name in zip(wa_ids, named, strict=True)]
    what = "add" if is_added else "remove"
    change = {
        "group_id": group["id"],
        "type": f"group_participants_{what}",
        "request_id": request_id,
        "added_participants" if is_added else "removed_participants": rows,
    }
    _notify(call, number, "group_participants_update", change)
    return {"messaging_product": "whatsapp", "request_id": request_id}


async def join_requests(call: Call) -> Row:
    """GET, POST and DELETE /{group}/join_requests: list, approve or reject join requests."""
    _, group = _group(call)
    if call.request.method == "GET":
        return page(call, group["join_requests"], lambda row: str(row["join_request_id"]), lambda row: row)
    wanted = coerced("texts", "join_requests", call.params().get("join_requests"))
    known = {row["join_request_id"]: row for row in group["join_requests"]}
    group["join_requests"] = [row for key, row in known.items() if key not in wanted]
    if call.request.method == "POST":
        group["participants"] += [{"wa_id": known[key]["wa_id"]} for key in wanted if key in known]
    call.sim.state.changed()
    done = "approved_join_requests" if call.request.method == "POST" else "rejected_join_requests"
    failed = [{"join_request_id": key, "errors": [{"code": 100}]} for key in wanted if key not in known]
    return {
        "messaging_product": "whatsapp",
        done: [key for key in wanted if key in known],
        **({"failed_join_requests": failed} if failed else {}),
    }


def _link() -> str:
    return f"https://chat.whatsapp.com/{secrets.token_urlsafe(16)}"


def register(table: Table) -> None:
    """Register these routes in the table."""
    table.edge("POST", "groups", create_group)
    table.edge("GET", "groups", list_groups)
    for method, handler in (("GET", get_group), ("POST", update_group), ("DELETE", delete_group)):
        table.node(method, lambda sim, node: owner_of(sim, node) is not None, handler)
    for method in ("GET", "POST", "DELETE"):
        table.edge(method, "invite_link", invite_link)
        table.edge(method, "join_requests", join_requests)
    table.edge("POST", "participants", participants)
    table.edge("DELETE", "participants", participants)
