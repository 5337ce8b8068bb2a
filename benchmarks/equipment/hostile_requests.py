"""Hostile requests: requests with which a known or unknown caller tries to use too much CPU or memory of a process.

Each request has its exact head, its body in parts, and the statuses that are right answers to it.
"""

import hashlib
import hmac
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024
CLOSED = 0
"""The connection was closed without a readable response."""
FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=b"


@dataclass(frozen=True)
class Hostile:
    """One request."""

    what: str
    statuses: frozenset[int]
    head: bytes = field(repr=False)
    body: bytes = field(repr=False, default=b"")
    times: int = 1
    """How often the body is sent."""
    pause: float = 0.0
    """Seconds between the bytes of a body that is sent byte by byte."""

    def parts(self) -> Iterator[bytes]:
        """The bytes to send, in pieces."""
        yield self.head
        if self.pause:
            yield from (bytes([byte]) for byte in self.body)
        else:
            yield from (self.body for _ in range(self.times))


def requests(*, key: str, number: str, app_secret: str, csrf: str) -> Iterator[Hostile]:
    """All hostile requests, with the credentials of one business. `csrf` is a public CSRF token of the log-in page.

    An iterator, because a body can take 100 MiB of memory in this process too.
    """
    return itertools.chain(
        _forms(csrf),
        _uploads(key, number),
        _batches(key, number),
        messages(key, number),
        _agents(key),
        _heads(),
        _notifications(app_secret),
    )


def _forms(csrf: str) -> Iterator[Hostile]:
    cookie = {"Cookie": f"csrftoken={csrf}", "Content-Type": FORM}
    fields = b"csrfmiddlewaretoken=%b&" % csrf.encode()
    yield _request(
        "a form of 100 MiB to /login", "POST", "/login", {413}, MIB * b"x", times=100, headers=cookie
    )
    yield _chunked("the same in chunks", "/login", {413, 400, 403}, MIB * b"x", times=100, headers=cookie)
    many = fields + b"a&" * (30 * 1024)
    yield _request("a form of 30,000 fields", "POST", "/login", {400, 403}, many, headers=cookie)
    parts = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 1200
    yield _request(
        "thousands of parts to /login",
        "POST",
        "/login",
        {400, 403},
        parts,
        headers={**cookie, "Content-Type": PARTS},
    )
    login = fields + b"login=nobody@example.com&password=" + b"x" * 60_000
    yield _request("a password of 60,000 characters", "POST", "/login", {200, 403}, login, headers=cookie)
    yield _request("a query of 4,000 parameters", "GET", f"/v1/numbers?{'a&' * 2000}", {400, 401, 414})


def _uploads(key: str, number: str) -> Iterator[Hostile]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": PARTS}
    part = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n%b\r\n%b\r\n'
    wrong = {400, 413}

    def upload(what: str, body: bytes, statuses: set[int] = wrong, times: int = 1) -> Hostile:
        return _request(what, "POST", "/v1/media", statuses, body, times=times, headers=headers)

    tiny = (part % (b"a", b"", b"", b"")) * 20_000
    yield upload("an upload of a million parts", tiny, times=50)
    files = (part % (b"f", b'; filename="f"', b"", b"x")) * 15_000
    yield upload("an upload of a million files", files, times=50)
    yield upload("an upload with a field of 100 MiB", (part % (b"a", b"", b"", b"x" * 100 * MIB)))
    yield upload("a part whose headers have 100 MiB", b"--b\r\nX: " + b"x" * (100 * MIB))
    yield upload("100 MiB before the first part", b"-" * (100 * MIB))
    encoded = part % (
        b"file",
        b'; filename="f"',
        b"Content-Transfer-Encoding: base64\r\n",
        b"\n" * (50 * MIB),
    )
    yield upload("a file of 50 MiB of blanks in base64", encoded + b"--b--\r\n")
    document = part % (b"file", b'; filename="f"', b"Content-Type: application/pdf\r\n", b"x" * (100 * MIB))
    file = document + b"--b--\r\n"
    yield upload("a file of 100 MiB for an unknown number", (part % (b"from", b"", b"", b"1")) + file)
    own = part % (b"from", b"", b"", number.encode())
    yield upload("a file of 100 MiB for an own number", own + file, {200})


def _batches(key: str, number: str) -> Iterator[Hostile]:
    item = '{"to":"919812345678","type":"text","text":{"body":"%s"}}'
    most = 32 * MIB - 200

    def batch(what: str, items: bytes, statuses: set[int] | None = None) -> Hostile:
        body = b'{"from":"%b","messages":[%b]}' % (number.encode(), items)
        return _json(f"a batch of {what}", "/v1/messages/batch", statuses or {400}, body, key)

    yield batch("11 million empty objects", b",".join([b"{}"] * (most // 3)))
    yield batch("16 million zeros", b",".join([b"0"] * (most // 2)))
    yield batch("11 million empty arrays", b",".join([b"[]"] * (most // 3)))
    yield batch(
        "one item with 11 million objects",
        b'{"to":"1","type":"t","x":[%b]}' % b",".join([b"{}"] * (most // 3 - 20)),
    )
    members = b",".join(b'"%x":1' % place for place in range(2_500_000))
    yield batch("one item with 2.5 million members", b'{"to":"1","type":"t",%b}' % members)
    yield batch("the same with a from", b'{"to":"1","type":"t","from":"%b",%b}' % (number.encode(), members))
    fill = b'{"to":"1","type":"t","from":"%b",%b}' % (
        number.encode(),
        b",".join(b'"%x":1' % place for place in range(49)),
    )
    yield batch("10,000 items of 49 members and a from", b",".join([fill] * 10_000), {202, 400})
    odd = fill.replace(b'"from"', rb'"fr\u006fm"')
    yield batch("10,000 items of 49 members and a from in escapes", b",".join([odd] * 10_000))
    yield batch(
        "200 items nested 5,000 deep", b",".join([b"{" + b'"a":' + b"[" * 5000 + b"]" * 5000 + b"}"] * 200)
    )
    text = (item % ("hello, " * 450)).encode()
    yield batch("10,000 texts, 32 MiB", b",".join([text] * 10_000), {202})


def messages(key: str, number: str) -> Iterator[Hostile]:
    """Requests that send a single message of a business."""
    begin = b'{"from":"%b","to":"1","type":"text",' % number.encode()
    bodies = {
        "1 MiB of empty objects": b'"x":[%b]}' % b",".join([b"{}"] * 340_000),
        "1 MiB of zeros": b'"x":[%b]}' % b",".join([b"0"] * 520_000),
        "19,990 members": b",".join(b'"%x":1' % place for place in range(19_990)) + b"}",
        "1 MiB of members": b",".join(b'"%x":1' % place for place in range(100_000)) + b"}",
        "500,000 levels": b'"x":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        "a number of 500,000 digits": b'"x":' + b"9" * 500_000 + b"}",
    }
    for name, rest in bodies.items():
        for own_key in ({}, {"Idempotency-Key": f"hostile-{len(rest)}"}):
            what = f"a message of {name}{' with a key' * bool(own_key)}"
            statuses = {200, 400, 502}
            yield _json(what, "/v1/messages", statuses, begin + rest, key, **own_key)
    drip = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    yield _request(
        "a body that drips", "POST", "/v1/messages", {408, 400, CLOSED}, b"x" * 200, drip, pause=0.1
    )


def tools_of_agents(key: str) -> Hostile:
    """A normal call of `/mcp`. A process's first such call imports the protocol's library, which takes a second."""
    return _agent(key, "the tools", "tools/list", b"{}")


def _agents(key: str) -> Iterator[Hostile]:
    for what, value, count in (
        ("19,000 wrong recipients", b"1", 19_000),
        ("500,000 wrong recipients", b"1", 500_000),
        ("340,000 objects as recipients", b"{}", 340_000),
    ):
        recipients = b",".join([value] * count)
        parameters = b'{"name":"send_message","arguments":{"to":[%b]}}' % recipients
        yield _agent(key, what, "tools/call", parameters)
    arguments = (
        b'{"to":[%b],"idempotency_key":"k","confirm":true,"message":{"type":"text","text":{"body":"%b"}}}'
        % (
            b",".join(b'"9198%08d"' % number for number in range(1_000)),
            b"x" * 48_000,
        )
    )
    parameters = b'{"name":"send_message","arguments":%b}' % arguments
    yield _agent(key, "48,000 characters for 1,000 recipients", "tools/call", parameters)


def _agent(key: str, what: str, method: str, parameters: bytes) -> Hostile:
    body = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}' % (method.encode(), parameters)
    accept = "application/json, text/event-stream"
    return _json(f"an agent's call with {what}", "/mcp", {200, 400, 413}, body, key, Accept=accept)


def _heads() -> Iterator[Hostile]:
    many = {f"X-{place}": "y" for place in range(2000)}
    refused = {400, 404, 414, 431, CLOSED}
    yield _request("2,000 headers", "GET", "/v1/health/live", refused | {200}, b"", many)
    yield _request("a path of 1 MiB", "GET", "/" + "a" * MIB, refused)
    yield _request(
        "a header of 100 MiB", "GET", "/v1/health/live", refused, b"", {"X-Long": "y" * (100 * MIB)}
    )
    one = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield Hostile("1,000 requests on a connection at once", frozenset({200}), one * 1000)
    head = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\nX-Drip: "
    yield Hostile("headers that drip", frozenset({408}), head, b"x" * 200, pause=0.1)


def _notifications(app_secret: str) -> Iterator[Hostile]:
    notification = b'{"object":"whatsapp_business_account","entry":[%b]}'
    entry = b'{"id":"1","changes":[{"field":"messages","value":{"messages":[%b]}}]}'
    message = b'{"from":"919812345678","id":"wamid.%07d","timestamp":"1793500000","type":"text","text":{"body":"hi"}}'
    items = b",".join(message % place for place in range(100_000))
    bodies = {
        "100,000 messages": notification % (entry % items),
        "1,000 messages": notification % (entry % b",".join(message % place for place in range(1000))),
        "100,000 entries": notification % b",".join([b"{}"] * 100_000),
        "16 MiB of empty arrays": notification % (entry % b",".join([b"[]"] * (5 * MIB))),
        "a million levels": b'{"object":' + b"[" * MIB + b"]" * MIB + b"}",
        "a number of 10 million digits": b'{"object":' + b"9" * (10 * MIB) + b"}",
        "16 MiB of escapes": notification % (entry % (b'{"x":"' + b"\\ud800" * (2 * MIB) + b'"}')),
    }
    for name, body in bodies.items():
        digest = hmac.new(app_secret.encode(), body, hashlib.sha256).hexdigest()
        signed = {"X-Hub-Signature-256": f"sha256={digest}", "Content-Type": "application/json"}
        yield _request(f"a signed notification of {name}", "POST", "/upstream/webhook", {200}, body, signed)
    unsigned = {"X-Hub-Signature-256": f"sha256={'0' * 64}", "Content-Type": "application/json"}
    yield _request(
        "16 MiB that nobody signed", "POST", "/upstream/webhook", {401}, b"x" * (16 * MIB), unsigned
    )
    small = b"1\r\nx\r\n" * 300_000 + b"0\r\n\r\n"
    yield _chunked(
        "300,000 chunks of one byte",
        "/upstream/webhook",
        {400, 431, CLOSED},
        small,
        is_framed=True,
    )


def _json(what: str, path: str, statuses: set[int], body: bytes, key: str, **headers: str) -> Hostile:
    named = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **headers}
    return _request(what, "POST", path, statuses, body, named)


def _request(
    what: str,
    method: str,
    path: str,
    statuses: set[int],
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    times: int = 1,
    pause: float = 0.0,
) -> Hostile:
    sized = {"Content-Length": str(len(body) * times)} if body else {}
    head = _head(method, path, {**(headers or {}), **sized})
    return Hostile(what, frozenset(statuses), head, body, times, pause)


def _chunked(
    what: str,
    path: str,
    statuses: set[int],
    body: bytes,
    *,
    times: int = 1,
    is_framed: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Hostile:
    chunk = body if is_framed else b"%x\r\n%b\r\n" % (len(body), body)
    head = _head("POST", path, {**(headers or {}), "Transfer-Encoding": "chunked"})
    return Hostile(what, frozenset(statuses), head, chunk, times)


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
