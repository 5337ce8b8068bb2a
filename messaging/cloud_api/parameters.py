"""Parses the parameters of a Graph request. Like Meta, it merges query, form and JSON before it applies any rule.

These are pure functions, so that every listener parses and translates requests alike. A member of the body overrides a
parameter of the query. JSON from the caller keeps its bytes.

The listener (`web/routes.py`) handles sends at `POST /{number}/messages` and `/{number}/marketing_messages` with the
flow of `/v1/messages`. `graph_send` and `send_call` translate these requests.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import orjson
from django.http import QueryDict
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from rest_framework.exceptions import ParseError

from gateway.api.errors import InvalidRequest
from gateway.api.json import MOST_VALUES, parse_object
from messaging.sending import outbound

CREDENTIALS = frozenset({"access_token", "appsecret_proof", "appsecret_time"})
"""Parameters that are not passed on: the caller's key, and proofs for that key, which Meta could not check. The service
adds its own token and proof.
"""
DENIED = frozenset({"batch", "ids", "include_headers", "method"})
"""Parameters that turn a request into a different request or into several requests."""
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
WRITTEN_AS_JSON = frozenset(
    {
        "audio", "backup", "block_users", "calling", "categories", "commands", "components", "contacts",
        "context", "degrees_of_freedom_spec", "dimensions", "document", "fields", "filtering", "hsm_ids",
        "image", "interactive", "join_requests", "languages", "library_template_body_inputs",
        "library_template_button_inputs", "location", "metric_types", "participants", "prompts", "reaction",
        "session", "sticker", "storage_configuration", "template", "template_ids", "text", "typing_indicator",
        "user_identity_change", "video", "webhook_configuration", "websites", "whatsapp_business_api_data",
    }
)  # fmt: skip
"""Parameters whose value is an object or an array. In a query or form the value is JSON text."""
_OUTSIDE = re.compile(r"\b(?!whatsapp_business_profile\b)\w*business\w*\s*[{.(]", re.IGNORECASE)
"""Matches expanded fields that lead from the node to the business portfolio and its objects."""
_USERS = re.compile(r"\bassigned_users\b", re.IGNORECASE)
_KEY = re.compile(r"\[([^\]]*)\]")
_MOST_KEYS = 16
"""How many keys a name such as `a[b][c]` may have."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a request. `body` has all parameters as JSON. If the caller sent JSON, its bytes are kept."""

    values: dict[str, Any] = field(repr=False)
    body: bytes = field(repr=False)
    has_body: bool = False
    access_token: str | None = field(default=None, repr=False)

    def query(self) -> dict[str, str]:
        """All parameters, as texts for a query."""
        return {
            name: value if isinstance(value, str) else orjson.dumps(value).decode()
            for name, value in self.values.items()
        }

    def text(self, name: str) -> str | None:
        """A text or integer parameter, as a text. None for other values."""
        value = self.values.get(name)
        return str(value) if isinstance(value, str) or type(value) is int else None

    def less_product(self, *names: str) -> dict[str, Any]:
        """The values without `messaging_product` and without the given names."""
        return {
            name: value for name, value in self.values.items() if name not in {"messaging_product", *names}
        }


@dataclass(frozen=True, slots=True)
class MessageCall:
    """The `/v1` call equivalent to a POST to a number's `messages` or `marketing_messages`."""

    path: str
    body: bytes = field(repr=False)
    members: dict[str, Any] = field(repr=False)


def read(
    *, query: str, content_type: str, body: bytes, form: Iterable[tuple[str, str]] | None = None
) -> Parameters:
    """Parse a request's parameters. `form` has the fields of an already parsed multipart body.

    Raises InvalidRequest for parameters that cannot be parsed, and for parameters that reach other nodes than the
    path's node.
    """
    asked = _fields(_pairs(query)) if query else {}
    kind = content_type.partition(";")[0].strip().lower()
    if form is not None:
        given, raw = _fields(form), b""
    elif kind == FORM:
        given, raw = _fields(_pairs(body.decode(errors="replace"))), b""
    elif body.strip():
        given, raw = _object(body), body
    else:
        given, raw = {}, b""
    token = given.get("access_token") or asked.get("access_token")
    if raw and not CREDENTIALS.isdisjoint(given):
        raw = outbound.without(raw, *CREDENTIALS)
    values = _less_credentials({**asked, **given} if asked else given)
    if raw:
        if asked:
            added = {name: asked[name] for name in asked if name not in given}
            raw = with_members(_less_credentials(added), raw)
        # Parses objects that the caller wrote as JSON text.
        values |= {name: _decoded(name, text) for name, text in values.items() if isinstance(text, str)}
    else:
        raw = _composed(values)
    _require_own_node(values)
    return Parameters(
        values,
        raw,
        has_body=not given.keys() <= CREDENTIALS,
        access_token=token if isinstance(token, str) else None,
    )


def message_call(number: str, edge: str, given: Parameters) -> MessageCall:
    """Translate a send or a read mark. Adds `from` to the caller's bytes, and a missing `type` to a text message."""
    added: dict[str, Any] = {"from": number}
    if edge == "messages" and given.values.get("status") == "read":
        members = {**given.less_product("status"), **added}
        return MessageCall("/v1/messages/read", orjson.dumps(members), members)
    if "type" not in given.values and "text" in given.values:
        added["type"] = "text"
    body = outbound.without(given.body or b"{}", "from") if "from" in given.values else given.body
    path = "/v1/messages" if edge == "messages" else f"/{edge}"
    return MessageCall(path, with_members(added, body or b"{}"), {**given.values, **added})


def with_members(added: Mapping[str, Any], raw: bytes) -> bytes:
    """Insert members at the beginning of a JSON object. The other members keep their bytes."""
    if not added:
        return raw
    rest = raw.lstrip()[1:]
    return orjson.dumps(added)[:-1] + (b"" if rest.lstrip() == b"}" else b",") + rest


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_VALUES)
    except ValueError:
        raise InvalidRequest(f"A request must not have more than {MOST_VALUES:,} parameters.") from None


def _fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Parse the fields of a query or form. As at Meta, the name `a[b]` means the member `b` of `a`."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        head, bracket, rest = name.partition("[")
        keys = [re.sub(r"[. ]", "_", head.strip()), *_KEY.findall(bracket + rest)]
        if len(keys) > _MOST_KEYS:
            raise InvalidRequest(f"A parameter's name must not have more than {_MOST_KEYS} keys.")
        holder = values
        for key, _ in pairwise(keys):
            place = key or str(len(holder))
            if not isinstance(holder.get(place), dict):
                holder[place] = {}
            holder = holder[place]
        holder[keys[-1] or str(len(holder))] = text
    return {name: _decoded(name, _lists(value)) for name, value in values.items()}


def _lists(value: Any) -> Any:
    """Convert objects with the keys 0, 1, 2 and so on to arrays."""
    if not isinstance(value, dict):
        return value
    members = {name: _lists(member) for name, member in value.items()}
    return (
        list(members.values()) if list(members) == [str(place) for place in range(len(members))] else members
    )


def _decoded(name: str, value: Any) -> Any:
    if name in WRITTEN_AS_JSON and isinstance(value, str) and value.lstrip()[:1] in {"{", "[", '"'}:
        try:
            return parse_object(b'{"value":%b}' % value.encode())["value"]
        except ParseError:
            return value
    return value


def _object(body: bytes) -> dict[str, Any]:
    try:
        return parse_object(body)
    except ParseError as error:
        raise InvalidRequest(str(error.detail)) from None


def _composed(values: dict[str, Any]) -> bytes:
    """The values as JSON. Raises InvalidRequest if they exceed the limits of a JSON body."""
    if not values:
        return b""
    try:
        body = orjson.dumps(values)
    except TypeError:
        raise InvalidRequest("The parameters are nested too deeply, or are not strings.") from None
    _object(body)
    return body


def _less_credentials(values: dict[str, Any]) -> dict[str, Any]:
    if CREDENTIALS.isdisjoint(values):
        return values
    return {name: value for name, value in values.items() if name not in CREDENTIALS}


def _require_own_node(values: Mapping[str, Any]) -> None:
    if not DENIED.isdisjoint(values):
        denied = sorted(DENIED.intersection(values))
        raise InvalidRequest.of(**dict.fromkeys(denied, "This parameter is not passed on."))
    if "fields" not in values:
        return
    fields = values["fields"]
    named = fields if isinstance(fields, list) else [fields]
    if not all(isinstance(name, str) for name in named):
        raise InvalidRequest.of(fields="Must be the names of fields.")
    if any(_OUTSIDE.search(name) for name in named):
        raise InvalidRequest.of(fields="Fields of the business portfolio are not expanded.")
    if any(_USERS.search(name) for name in named):
        raise InvalidRequest.of(fields="Fields about who may use the account are not passed on.")


_PATH = re.compile(r"/(?:(v\d{1,3}\.\d{1,3})/)?([0-9]{5,64})/(messages|marketing_messages)/?")


class GraphSend(NamedTuple):
    """The path of a send."""

    version: str | None
    number: str
    edge: str

    @property
    def route(self) -> str:
        """The pattern of the path."""
        return ("/{version}" if self.version else "") + "/{node}/" + self.edge


def graph_send(path: str) -> GraphSend | None:
    """Parse the path of a send. None for other paths."""
    found = _PATH.fullmatch(path) if path.rstrip("/").endswith("messages") else None
    return GraphSend(found[1], found[2], found[3]) if found else None


def credential(authorization: str | None, api_key: str | None, query: str) -> str | None:
    """The caller's key as an `Authorization` header, taken from that header, from `X-API-Key` or from the query. None
    without a key.
    """
    scheme, _, token = (authorization or "").partition(" ")
    if scheme == "OAuth":
        # Meta requires this scheme for resumable uploads, and accepts it everywhere.
        return f"Bearer {token}"
    if authorization:
        return authorization
    key = api_key or (QueryDict(query).get("access_token") if query else None)
    return f"Bearer {key}" if key else None


def access_token(*, query: str, content_type: str, body: bytes) -> str | None:
    """The key in the query or the body of a request, if any. Raises InvalidRequest."""
    return read(
        query=query, content_type=content_type, body=body, form=form_fields(content_type, body)
    ).access_token


def send_call(send: GraphSend, *, query: str, content_type: str, body: bytes) -> MessageCall:
    """Translate a send into the equivalent `/v1` call. Raises InvalidRequest."""
    given = read(query=query, content_type=content_type, body=body, form=form_fields(content_type, body))
    return message_call(send.number, send.edge, given)


def form_fields(content_type: str, body: bytes) -> list[tuple[str, str]] | None:
    """The fields of a multipart body. None for other bodies. Raises InvalidRequest."""
    if not content_type.lower().startswith(MULTIPART):
        return None
    meta = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
    try:
        form, _ = MultiPartParser(meta, BytesIO(body), []).parse()
    except MultiPartParserError as error:
        raise InvalidRequest(str(error)) from None
    return [(name, value) for name, value in form.items() if isinstance(value, str)]
