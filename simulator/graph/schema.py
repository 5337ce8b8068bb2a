"""The declared part of Meta's schema: edges that only store objects, with their fields, types and conversions.

A `Document` is one object below a node, a `Collection` is a list of objects below a node. Edges with further behaviour
(sending, registering, groups, calls) have their own modules. The forms are those of Meta's OpenAPI (v23.0, 2025-11)
and its pages of 2026.
"""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from simulator.errors import GraphError, invalid_parameter, no_such_object
from simulator.graph.dispatch import Call, Table, text_of
from simulator.graph.fields import page, parse_fields
from simulator.parts import Simulator
from simulator.world.identifiers import digits_of, graph_time, new_id

Row = dict[str, Any]
SIGNUP_TEXTS = dict.fromkeys(
    ("signup_message", "confirmation_message", "website_url", "promo_code", "display_name"), "text"
)
"""Members of a sign-up link that can be changed."""


def coerced(kind: str, name: str, value: Any) -> Any:
    """Convert a parameter to its type as Meta does: numbers and flags may be texts, objects may be JSON texts."""
    if isinstance(value, str) and kind in {"object", "list", "texts"}:
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            value = value.split(",") if kind == "texts" else value
    if kind == "flag" and str(value).lower() in {"true", "false", "1", "0"}:
        return str(value).lower() in {"true", "1"}
    if kind == "number" and str(value).lstrip("-").isdigit():
        return int(value)
    if kind == "text" and isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    if kind == "object" and isinstance(value, dict):
        return value
    if kind == "list" and isinstance(value, list):
        return value
    if kind == "texts" and isinstance(value, list) and all(isinstance(each, str | int) for each in value):
        return [str(each) for each in value]
    raise invalid_parameter(f"Param {name} must be of type {kind}")


def read_fields(params: Mapping[str, Any], fields: Mapping[str, str], required: tuple[str, ...]) -> Row:
    """The known parameters of a call, converted to their types. A missing required parameter is error 100. Unknown
    parameters are ignored.
    """
    for name in required:
        if params.get(name) in (None, ""):
            raise invalid_parameter(f"The parameter {name} is required.")
    return {name: coerced(kind, name, params[name]) for name, kind in fields.items() if name in params}


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a number or account, read with GET and changed with POST."""

    node: str
    edge: str
    fields: Mapping[str, str]
    required: tuple[str, ...] = ()
    initial: Mapping[str, Any] = field(default_factory=dict)
    is_listed: bool = True
    """Whether GET returns the object as the only row of a list."""
    answer: Mapping[str, Any] = field(default_factory=lambda: {"success": True})
    can_delete: bool = False
    has_id: bool = False

    async def get(self, call: Call) -> Row:
        """GET /{node}/{edge}: read the object."""
        node_id = owner_of(call, self.node)
        kept = {**self.initial, **call.sim.state.objects.get(f"{node_id}/{self.edge}", {}).get("", {})}
        own_id = {"id": f"5{node_id[1:]}"} if self.has_id else {}
        shown = chosen(call, {**own_id, **{name: each for name, each in kept.items() if each is not None}})
        return {"data": [shown]} if self.is_listed else shown

    async def post(self, call: Call) -> Row:
        """POST /{node}/{edge}: change the object."""
        node_id = owner_of(call, self.node)
        changes = read_fields(call.params(), self.fields, self.required)
        rows = call.sim.state.objects.setdefault(f"{node_id}/{self.edge}", {})
        rows[""] = {**rows.get("", {}), **changes}
        call.sim.state.changed()
        return dict(self.answer)

    async def delete(self, call: Call) -> Row:
        """DELETE /{node}/{edge}: delete the object."""
        node_id = owner_of(call, self.node)
        call.sim.state.objects.pop(f"{node_id}/{self.edge}", None)
        call.sim.state.changed()
        return {"success": True}

    def register(self, table: Table) -> None:
        """Register its routes in the table."""
        table.edge("GET", self.edge, self.get)
        table.edge("POST", self.edge, self.post)
        if self.can_delete:
            table.edge("DELETE", self.edge, self.delete)


@dataclass(frozen=True, slots=True)
class Collection:
    """A list of objects below a number or account. `key` is the member that identifies an object."""

    node: str
    edge: str
    key: str
    make: Callable[[Call, Row], Row]
    fields: Mapping[str, str]
    required: tuple[str, ...] = ()
    answer: Callable[[Row], Row] = lambda row: row
    answer_to_change: Callable[[Row], Row] | None = None
    """Converts a changed row to the answer of the changing call. The default is `answer`."""
    is_flat: bool = False
    """Whether the objects have no paths below the node."""
    are_nodes: bool = False
    """Whether the path of an object is only its id."""

    def rows(self, call: Call) -> dict[str, Row]:
        """The objects of the node in the path."""
        return call.sim.state.objects.setdefault(f"{owner_of(call, self.node)}/{self.edge}", {})

    async def list(self, call: Call) -> Row:
        """GET /{node}/{edge}: list all objects, or only the object with the key in the parameters."""
        wanted = call.params().get(self.key)
        rows = [row for row in self.rows(call).values() if wanted is None or row[self.key] == wanted]
        return page(call, rows, lambda row: str(row[self.key]), lambda row: chosen(call, row))

    async def create(self, call: Call) -> Row:
        """POST /{node}/{edge}: create an object, or change the object with the key in the parameters."""
        rows, params = self.rows(call), call.params()
        given = read_fields(params, self.fields, self.required)
        former = rows.get(str(params.get(self.key, "")))
        row = {**former, **given} if former is not None else {**given, **self.make(call, given)}
        rows[str(row[self.key])] = row
        call.sim.state.changed()
        return ((former is not None and self.answer_to_change) or self.answer)(row)

    async def get(self, call: Call) -> Row:
        """GET /{node}/{edge}/{key}: read one object."""
        return {"data": [chosen(call, self._one(call))]}

    async def delete(self, call: Call) -> Row:
        """DELETE /{node}/{edge}/{key}: delete one object. The key may also be a parameter."""
        row = self._one(call)
        del self.rows(call)[str(row[self.key])]
        call.sim.state.changed()
        return {"success": True}

    async def node_call(self, call: Call) -> Row:
        """GET, POST and DELETE /{id}: read, change or delete one object."""
        owner = self._owner_of(call.sim, call.node)
        call.account(owner)
        rows = call.sim.state.objects[f"{owner}/{self.edge}"]
        if call.request.method == "GET":
            return chosen(call, rows[call.node])
        if call.request.method == "POST":
            rows[call.node] = {**rows[call.node], **read_fields(call.params(), self.fields, ())}
        else:
            del rows[call.node]
        call.sim.state.changed()
        return {"success": True}

    def _owner_of(self, sim: Simulator, node: str) -> str | None:
        """The account to which an object belongs."""
        objects = sim.state.objects
        return next(
            (each for each in sim.state.accounts if node in objects.get(f"{each}/{self.edge}", {})), None
        )

    def _one(self, call: Call) -> Row:
        key = call.edge.partition("/")[2] or str(call.params().get(self.key, ""))
        row = self.rows(call).get(key)
        if row is None:
            raise GraphError(100, f"There is no {self.edge} {key}.", subcode=33)
        return row

    def register(self, table: Table) -> None:
        """Register its routes in the table."""
        table.edge("GET", self.edge, self.list)
        table.edge("POST", self.edge, self.create)
        if self.are_nodes:
            for method in ("GET", "POST", "DELETE"):
                table.node(method, lambda sim, node: self._owner_of(sim, node) is not None, self.node_call)
        if self.is_flat or self.are_nodes:
            return
        table.edge("DELETE", self.edge, self.delete)
        table.edge("GET", f"{self.edge}/*", self.get)
        table.edge("DELETE", f"{self.edge}/*", self.delete)


def owner_of(call: Call, kind: str) -> str:
    """The id of the number or account in the path. Raises an error if the id is of another kind, or if the token has no
    access to it.
    """
    return call.number().id if kind == "number" else call.account().waba_id


def chosen(call: Call, row: Row) -> Row:
    """The requested fields of a row, with its id. If the call has no `fields`, these are all fields."""
    asked = parse_fields(str(call.params().get("fields") or ""))
    return {name: value for name, value in row.items() if not asked or name in {*asked, "id"}}


def _qr_code(call: Call, given: Row) -> Row:
    code = secrets.token_hex(7).upper()
    made = {"code": code, "deep_link_url": f"https://wa.me/message/{code}"}
    if given.pop("generate_qr_image", None):
        made["qr_image_url"] = f"{call.sim.config.base_url}/sim/qr/{code}"
    return made


def _catalog(call: Call, given: Row) -> Row:
    return {"id": given.pop("catalog_id"), "name": "Catalog"}


def _schedule(call: Call, given: Row) -> Row:
    return {"id": new_id("7"), "status": "ACTIVE", "created_time": graph_time()}


def _signup(call: Call, given: Row) -> Row:
    policy = given.pop("policy", None) or {}
    account = call.account()
    if not call.sim.state.objects.get(f"{account.waba_id}/signups") and policy.get("accepted") is not True:
        raise GraphError(100, "The first sign-up needs policy with accepted: the terms of service.")
    _require_promo_code(given)
    return {"id": new_id("8"), "waba_id": account.waba_id, "status": "ACTIVE"}


def _require_promo_code(signup: Row) -> None:
    if "{{promo_code}}" in str(signup.get("confirmation_message")) and not signup.get("promo_code"):
        raise invalid_parameter("Param promo_code is required by the placeholder in confirmation_message")


DOCUMENTS = (
    Document(
        "number",
        "conversational_automation",
        {"enable_welcome_message": "flag", "prompts": "texts", "commands": "list"},
        is_listed=False,
    ),
    Document(
        "number",
        "whatsapp_commerce_settings",
        {"is_cart_enabled": "flag", "is_catalog_visible": "flag"},
        initial={"is_cart_enabled": True, "is_catalog_visible": False},
        has_id=True,
    ),
    Document(
        "number",
        "whatsapp_business_encryption",
        {"business_public_key": "text"},
        required=("business_public_key",),
        initial={"business_public_key": None, "business_public_key_signature_status": "VALID"},
    ),
    Document(
        "number",
        "business_compliance_info",
        {
            "entity_name": "text",
            "entity_type": "text",
            "entity_type_custom": "text",
            "is_registered": "flag",
            "grievance_officer_details": "object",
            "customer_care_details": "object",
        },
        required=("entity_name", "entity_type"),
        initial={"messaging_product": "whatsapp"},
    ),
    Document(
        "number",
        "official_business_account",
        {"business_website_url": "text", "primary_country_of_operation": "text", "supporting_links": "texts"},
        initial={"oba_status": "NOT_STARTED"},
        is_listed=False,
    ),
    Document(
        "number",
        "username",
        {"username": "text"},
        required=("username",),
        initial={"status": "approved"},
        is_listed=False,
        answer={"status": "approved"},
        can_delete=True,
    ),
)
COLLECTIONS = (
    Collection(
        "number",
        "message_qrdls",
        "code",
        _qr_code,
        {"prefilled_message": "text", "generate_qr_image": "text"},
        required=("prefilled_message",),
    ),
    Collection(
        "account",
        "product_catalogs",
        "id",
        _catalog,
        {"catalog_id": "text"},
        required=("catalog_id",),
        answer=lambda row: {"success": True},
    ),
    Collection(
        "account",
        "schedules",
        "id",
        _schedule,
        {
            "name": "text",
            "schedule_type": "text",
            "description": "text",
            "start_time": "text",
            "end_time": "text",
            "timezone": "text",
            "days_of_week": "texts",
            "is_active": "flag",
            "recurrence_pattern": "object",
        },
        required=("name",),
        answer=lambda row: {"id": row["id"]},
    ),
    Collection(
        "account",
        "template_groups",
        "id",
        lambda call, given: {"id": new_id("3")},
        {"name": "text", "description": "text", "whatsapp_business_templates": "texts"},
        required=("name",),
        answer=lambda row: {"id": row["id"]},
        are_nodes=True,
    ),
    Collection(
        "account",
        "welcome_message_sequences",
        "sequence_id",
        lambda call, given: {"sequence_id": new_id("1"), "is_used_in_ad": False},
        {"name": "text", "welcome_message_sequence": "object"},
        answer=lambda row: {"sequence_id": row["sequence_id"]},
        answer_to_change=lambda row: {"success": True},
    ),
    Collection(
        "account",
        "signups",
        "id",
        _signup,
        {**SIGNUP_TEXTS, "privacy_policy_url": "text", "policy": "object"},
        required=("signup_message", "confirmation_message", "privacy_policy_url"),
        answer=lambda row: {"id": row["id"]},
        is_flat=True,
    ),
)


async def block_users(call: Call) -> Row:
    """GET, POST and DELETE /{number}/block_users: list, block or unblock customers, several in one call."""
    number = call.number()
    rows = call.sim.state.objects.setdefault(f"{number.id}/block_users", {})
    if call.request.method == "GET":
        return page(call, list(rows.values()), lambda row: str(row["wa_id"]), lambda row: row)
    users = coerced("list", "block_users", call.params().get("block_users"))
    changed = []
    for user in users:
        named = user.get("user") or user.get("user_id") if isinstance(user, dict) else None
        if not named:
            raise invalid_parameter("Param block_users must hold objects with user or user_id")
        wa_id = digits_of(str(named)) if "user" in user else str(named)
        if call.request.method == "POST":
            rows[wa_id] = {"messaging_product": "whatsapp", "wa_id": wa_id}
        elif rows.pop(wa_id, None) is None:
            continue
        changed.append({"input": str(named), "wa_id": wa_id})
    call.sim.state.changed()
    what = "added_users" if call.request.method == "POST" else "removed_users"
    return {"messaging_product": "whatsapp", "block_users": {what: changed}}


async def signup(call: Call) -> Row:
    """GET and POST /signups/{id}: read or change a link at which customers sign up for messages."""
    found = _owner_of_signup(call)
    if found is None:
        raise no_such_object(call.edge, call.request.method)
    call.account(found)
    rows = call.sim.state.objects[f"{found}/signups"]
    row = rows[call.edge]
    if call.request.method == "GET":
        return chosen(call, row)
    changes = read_fields(call.params(), {**SIGNUP_TEXTS, "status": "text"}, ())
    if changes.get("status", "ACTIVE") not in {"ACTIVE", "DISABLED"}:
        raise invalid_parameter("Param status must be one of {ACTIVE, DISABLED}")
    _require_promo_code({**row, **changes})
    rows[call.edge] = {**row, **changes}
    call.sim.state.changed()
    return {"success": True}


def _owner_of_signup(call: Call) -> str | None:
    accounts, objects = call.sim.state.accounts, call.sim.state.objects
    return next((waba_id for waba_id in accounts if call.edge in objects.get(f"{waba_id}/signups", {})), None)


async def delete_contact(call: Call) -> Row:
    """DELETE /{number}/contact_book: remove the phone number behind a user id from the portfolio."""
    number, user_id = call.number(), text_of(call.params(), "bsuid")
    if ".ENT." in user_id:
        raise invalid_parameter("Param bsuid must not be a parent business-scoped user ID")
    deleted = call.sim.state.objects.setdefault(f"{number.id}/contact_book", {})
    is_known = user_id in call.sim.state.user_ids and user_id not in deleted
    if is_known:
        deleted[user_id] = {}
        call.sim.state.changed()
    return {"messaging_product": "whatsapp", "success": True, "deleted": is_known}


async def username_suggestions(call: Call) -> Row:
    """GET /{number}/username_suggestions: suggest user names."""
    name = "".join(filter(str.isalnum, call.number().verified_name.lower()))
    return {"data": [{"username_suggestions": [name, f"{name}_shop"]}]}


async def cancel_username(call: Call) -> Row:
    """DELETE /{number}/requested_username: do nothing, because no name waits for a review."""
    call.number()
    return {"success": False}


async def data_set(call: Call) -> Row:
    """GET and POST /{waba}/dataset: read the id of the account's conversions data set, of which there is one."""
    return {"id": f"4{call.account().waba_id[1:]}"}


async def nothing(call: Call) -> Row:
    """GET /{waba}/{edge}: return an empty list, for objects that the simulator does not have."""
    call.account()
    return {"data": []}


async def of_partners(call: Call) -> Row:
    """Reject a call that only solution partners may make, because all tokens here are business tokens."""
    call.account()
    raise GraphError(10, message="(#10) Application does not have permission for this action")


EMPTY = ("activities", "in_progress_onbehalf_request", "solutions", "system_users")
OF_PARTNERS = (
    ("GET", "extendedcredits"),
    ("POST", "migration_intent"),
    ("POST", "obo_mobility_intent"),
    ("POST", "set_obo_mobility_intent"),
    ("POST", "set_solution_migration_intent"),
)


def with_objects(value: Any, places: Mapping[str, frozenset[str]], path: str = "") -> Any:
    """Parse the members of a body that were sent as JSON text, if their paths are in `places`. Returns the body."""
    names = places.get(path)
    if names is None or not isinstance(value, dict):
        return value
    read = {}
    for name, member in value.items():
        if name in names and isinstance(member, str) and member.lstrip()[:1] in {"{", "["}:
            with suppress(orjson.JSONDecodeError):
                member = orjson.loads(member)
        read[name] = with_objects(member, places, f"{path}.{name}".lstrip("."))
    return read


def register(table: Table) -> None:
    """Register these routes in the table."""
    for declared in (*DOCUMENTS, *COLLECTIONS):
        declared.register(table)
    for method in ("GET", "POST", "DELETE"):
        table.edge(method, "block_users", block_users)
    table.edge("DELETE", "contact_book", delete_contact)
    for method in ("GET", "POST"):
        table.root(method, "signups/*", signup)
    table.edge("GET", "username_suggestions", username_suggestions)
    table.edge("DELETE", "requested_username", cancel_username)
    table.edge("GET", "dataset", data_set)
    table.edge("POST", "dataset", data_set)
    for name in EMPTY:
        table.edge("GET", name, nothing)
    for method, name in OF_PARTNERS:
        table.edge(method, name, of_partners)
