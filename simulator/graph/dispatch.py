"""Dispatch of the simulated Graph API: `handle` receives the calls of every version, such as `/v25.0/…`.

`handle` records the request, applies faults, checks the token, finds the handler in one table, and converts errors to
Meta's form. The handlers are in the other modules of this folder. A handler gets a `Call` and returns the JSON answer.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from aiohttp import web

from simulator import faults
from simulator.errors import GraphError, invalid_parameter, no_such_object, trace_id
from simulator.parts import Simulator
from simulator.world.records import Account, Number, Token

JSON_TYPE = "application/json; charset=UTF-8"
CREDENTIALS = frozenset({"access_token", "appsecret_proof", "appsecret_time"})
"""Parameters that identify the caller. They are not stored."""
_SECRET_PARAMETERS = {"access_token", "client_secret", "input_token", "code", "fb_exchange_token"}


class Call:
    """One Graph call: the argument of its handler."""

    __slots__ = (
        "body", "edge", "form", "message_id", "node", "request", "sim", "table", "token", "usage", "version",
    )  # fmt: skip

    def __init__(
        self, sim: Simulator, table: "Table", request: web.Request, version: str, node: str, edge: str
    ) -> None:
        self.sim = sim
        self.table = table
        self.request = request
        self.version = version
        self.node = node
        self.edge = edge
        self.body = b""
        self.form: dict[str, Any] | None = None
        self.token: Token = _NOBODY
        self.usage: dict[str, Any] | None = None
        self.message_id: str | None = None

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises error 100 for anything else."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise GraphError(
                100,
                message="(#100) The parameter messaging_product is required.",
                details="The body is no JSON.",
            ) from None
        if not isinstance(value, dict):
            raise GraphError(100, "The body is not a JSON object.")
        return value

    def params(self) -> dict[str, Any]:
        """Parameters from the query, a form or a JSON body. Management calls accept all three."""
        values: dict[str, Any] = dict(self.request.query)
        kind = self.request.content_type
        if self.form is not None:
            values.update(self.form)
        elif self.body and kind == "application/x-www-form-urlencoded":
            values.update(parse_qsl(self.body.decode(errors="replace"), keep_blank_values=True))
        elif self.body.lstrip()[:1] == b"{":
            values.update(self.json())
        return values

    def expanded(self, edge: str, query: Mapping[str, str]) -> "Call":
        """Make the call of an edge that was requested in the `fields` of its node."""
        request = self.request.clone(rel_url=self.request.rel_url.with_query(query))
        call = Call(self.sim, self.table, request, self.version, self.node, edge)
        call.token = self.token
        return call

    def account(self, waba_id: str | None = None) -> Account:
        """The account in the path, or `waba_id`. Raises an error if the token may not manage the account. Counts the
        call against the account's hourly limit.
        """
        wanted = waba_id or self.node
        account = self.sim.state.accounts.get(wanted)
        if account is None or not self.token.opens(wanted):
            raise no_such_object(self.node, self.request.method)
        if not self.token.may_manage:
            raise GraphError(10, message="(#10) Application does not have permission for this action")
        numbers = (self.sim.state.numbers[number_id] for number_id in account.numbers)
        registered = any(number.registered for number in numbers)
        self.usage, is_within = self.sim.throttle.take_call(wanted, registered=registered)
        if not is_within:
            raise GraphError(80007)
        return account

    def source_account(self) -> Account:
        """The account in the parameter `source_waba_id`, from which objects are copied."""
        source = text_of(self.params(), "source_waba_id")
        if source not in self.sim.state.accounts or not self.token.opens(source):
            raise invalid_parameter("Param source_waba_id must be an account that the token opens")
        return self.account(source)

    def number(self) -> Number:
        """The number in the path. Raises an error if the token may not manage the number's account."""
        number = self.sim.state.numbers.get(self.node)
        if number is None:
            raise no_such_object(self.node, self.request.method)
        self.account(number.waba_id)
        return number

    def sending_number(self) -> Number:
        """The number in the path. Raises an error if the token may not send from the number."""
        number = self.sim.state.numbers.get(self.node)
        if number is None:
            raise no_such_object(self.node, self.request.method)
        if not (self.token.opens(number.waba_id) and self.token.may_message):
            raise GraphError(
                200,
                message="(#200) You do not have the necessary permissions to send messages on behalf of this "
                "WhatsApp Business Account",
            )
        return number


Handler = Callable[[Call], Awaitable[Any]]
_NOBODY = Token("", [])


class Table:
    """The table of handlers: `edges` are `/{node}/{edge}`, `roots` are `/{name}` or `/{name}/*`, `nodes` are kinds of
    `/{id}`.
    """

    def __init__(self) -> None:
        self.edges: dict[tuple[str, str], Handler] = {}
        self.roots: dict[tuple[str, str], Handler] = {}
        self.nodes: list[tuple[str, Callable[[Simulator, str], bool], Handler]] = []
        self.public: set[str] = {"access_token"}
        self.streaming: set[str] = {"media"}
        self.bounded: set[str] = {"marketing_messages", "media", "messages"}
        """Edges whose objects have a separate limit."""

    def edge(self, method: str, name: str, handler: Handler) -> None:
        """Register `/{node}/{name}`."""
        self.edges[method, name] = handler

    def root(self, method: str, name: str, handler: Handler) -> None:
        """Register `/{name}`, or with `{name}/*` everything below it."""
        self.roots[method, name] = handler

    def node(self, method: str, is_kind: Callable[[Simulator, str], bool], handler: Handler) -> None:
        """Register `/{id}` for the ids of one kind."""
        self.nodes.append((method, is_kind, handler))

    def find(self, sim: Simulator, method: str, node: str, edge: str) -> Handler:
        """The handler of a path. Raises Meta's error for a path that does not exist."""
        if edge:
            # One handler serves all objects of a collection.
            handler = (
                self.edges.get((method, edge))
                or self.edges.get((method, f"{edge.partition('/')[0]}/*"))
                or self.roots.get((method, f"{node}/*"))
            )
            if handler is not None:
                return handler
            raise GraphError(
                2500,
                message=f"Unknown path components: /{edge}",
                status=400,
            )
        handler = self.roots.get((method, node))
        if handler is not None:
            return handler
        for wanted, is_kind, candidate in self.nodes:
            if wanted == method and is_kind(sim, node):
                return candidate
        raise no_such_object(node, method)


class Graph:
    """The handler of every Graph path."""

    def __init__(self, sim: Simulator, table: Table) -> None:
        self._sim = sim
        self._table = table

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one Graph call."""
        began = time.perf_counter()
        sim = self._sim
        parts = request.path.split("/", 3)
        node = parts[2] if len(parts) > 2 else ""
        edge = parts[3].rstrip("/") if len(parts) > 3 else ""
        call = Call(sim, self._table, request, parts[1], node, edge)
        is_upload = edge in self._table.streaming or node.startswith("upload:")
        if not is_upload and request.can_read_body:
            if request.content_type == "multipart/form-data":
                call.form = dict(await request.post())
            else:
                call.body = await request.read()
        query = request.query_string
        if query:
            query = urlencode([pair for pair in parse_qsl(query) if pair[0] not in _SECRET_PARAMETERS])
        received = sim.requests.add(
            method=request.method,
            path=request.path,
            edge=edge or "node",
            query=query,
            body=call.body,
            node=node,
        )
        trace = trace_id()
        after: faults.Rule | None = None
        response: web.StreamResponse | None = None
        try:
            if sim.faults:
                rule = self._matching_fault(call)
                if rule is not None:
                    received.fault = rule.action
                    if rule.when == "after":
                        after = rule
                    else:
                        response = await faults.act(rule, request)
            if response is None:
                handler = self._table.find(sim, request.method, node, edge)
                is_measured = False
                if edge not in self._table.public:
                    call.token = self._authenticate(call)
                    is_measured = (
                        edge not in self._table.bounded and not is_upload and request.method != "GET"
                    )
                    if is_measured and request.method == "POST":
                        _require_room(call)
                response = _answer(await handler(call))
                if is_measured:
                    for waba_id in call.token.waba_ids or ():
                        sim.state.measure(waba_id)
            if after is not None:
                response = await faults.act(after, request) or response
        except GraphError as error:
            response = web.Response(body=orjson.dumps(error.body(trace)), status=error.status)
            response.headers["Content-Type"] = JSON_TYPE
            if error.status == 401:
                why = f'OAuth "Facebook Platform" "invalid_token" "{error.message}"'
                response.headers["WWW-Authenticate"] = why
        received.status = response.status
        received.message_id = call.message_id
        received.ms = round((time.perf_counter() - began) * 1000, 3)
        if not response.prepared:
            headers = response.headers
            headers["x-fb-trace-id"] = trace
            headers["facebook-api-version"] = call.version
            if call.usage is not None:
                headers["X-Business-Use-Case-Usage"] = orjson.dumps(call.usage).decode()
                headers["X-App-Usage"] = '{"call_count":1,"total_cputime":0,"total_time":0}'
        return response

    def _matching_fault(self, call: Call) -> faults.Rule | None:
        body: Mapping[str, Any] = {}
        if call.body[:1] == b"{":
            try:
                body = orjson.loads(call.body)
            except orjson.JSONDecodeError:
                body = {}
        for rule in self._sim.faults:
            if rule.fits(call.request.method, call.request.path, call.node, body):
                return rule
        return None

    def _authenticate(self, call: Call) -> Token:
        """The token of the call. Upstream fact 1.0 lists where a call may carry the token. 1.8 covers
        `appsecret_proof`.
        """
        header = call.request.headers.get("Authorization", "")
        scheme, _, value = header.partition(" ")
        query = call.request.query if call.request.query_string else {}
        if scheme not in {"Bearer", "OAuth"} or not value:
            value = query.get("access_token", "")
        if not value:
            raise GraphError(
                104, message="An access token is required to request this resource.", details=None
            )
        token = find_token(self._sim, value)
        proof = query.get("appsecret_proof")
        if proof is None and b"appsecret_proof" in call.body:
            proof = str(call.params().get("appsecret_proof", ""))
        if proof is not None and not self._sim.state.proves(value, proof, query.get("appsecret_time")):
            raise invalid_parameter("Invalid appsecret_proof provided in the API argument")
        return token


def _require_room(call: Call) -> None:
    """Raise an error if an account is full, because the simulator's memory is limited."""
    for waba_id in call.token.waba_ids or ():
        if limit := call.sim.state.exceeded_limit(waba_id):
            raise invalid_parameter(f"The sandbox keeps {limit >> 20} MiB of an account: delete something.")


def find_token(sim: Simulator, value: str) -> Token:
    """The token with this value. Raises 190 with subcode 463 (expired) or 467 (unknown or withdrawn) if it is not
    valid.
    """
    token = sim.state.tokens.get(value)
    if token is None:
        if value == f"{sim.config.app_id}|{sim.config.app_secret}":
            return Token(value, None, kind="APP", app_id=sim.config.app_id, scopes=[])
    elif token.expires_at and token.expires_at <= time.time():
        raise GraphError(
            190,
            message="Error validating access token: Session has expired. Get a new access token.",
            subcode=463,
        )
    if token is None or token.invalidated:
        raise GraphError(
            190,
            message="Error validating access token: The session has been invalidated or is unknown.",
            subcode=467,
        )
    return token


def _answer(value: Any) -> web.StreamResponse:
    if isinstance(value, web.StreamResponse):
        return value
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return web.Response(body=body, headers={"Content-Type": JSON_TYPE})


def require_app(call: Call) -> None:
    """Require that the path names the simulated app, and that the token belongs to it."""
    if call.node != call.sim.config.app_id or call.token.app_id != call.sim.config.app_id:
        raise no_such_object(call.node, call.request.method)


def text_of(params: Mapping[str, Any], name: str) -> str:
    """A required text parameter. Raises error 100 when it is missing."""
    value = params.get(name)
    if value is None or value == "":
        raise invalid_parameter(f"The parameter {name} is required.")
    return str(value)
