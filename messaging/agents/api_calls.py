"""Calls of `/v1` on behalf of an agent, with the same views, checks, limits and answers as over HTTP."""

from collections.abc import Callable, Mapping
from io import BytesIO
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode

import orjson
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import NoReverseMatch, ResolverMatch, resolve, reverse
from urllib3.filepost import encode_multipart_formdata

from gateway import ids
from gateway.api import access_log, limits
from gateway.api.access_log import FinishedCall
from gateway.api.authentication import TENANT_HEADER, Caller, check_tenant_caller, reach_of
from gateway.api.errors import PayloadTooLarge, as_service_error, error_reply
from gateway.api.limits import CHUNKED, limit_of
from gateway.clock import now
from gateway.monitoring.logs import type_alone
from gateway.roles import Area, KeyScope, may_change
from messaging.idempotency import WINDOW
from messaging.models import Batch, IdempotencyRecord
from messaging.sending.flow import SendRequest, send_from_thread
from phone_numbers.models import PhoneNumber

_NOT_FOUND = {"error": {"code": "not_found", "message": "There is no such object."}}
_OF_THE_OUTER_CALL = ("CONTENT_LENGTH", "HTTP_IDEMPOTENCY_KEY", "HTTP_TRANSFER_ENCODING", CHUNKED)


class Refused(Exception):
    """Raised when the API rejects a call. `body` is the API's answer."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}")
        self.status, self.body = status, body


class File(NamedTuple):
    """A file in a multipart form."""

    name: str
    content_type: str
    content: bytes

    def __repr__(self) -> str:
        return type_alone(self)


class ApiCalls:
    """Calls the API with the credentials of one HTTP request."""

    def __init__(self, outer: HttpRequest, caller: Caller) -> None:
        self._outer, self._caller = outer, caller
        self._request_id: str = outer.request_id  # type: ignore[attr-defined]
        self.environment: str = caller.effective_environment
        """The environment of the credentials: `live` or `test`."""
        self.may_change: bool = caller.role is None or may_change(caller.role, Area.INTEGRATION)
        """Whether the caller's role allows tools that send or change something. Keys have no role."""
        self._reach = reach_of(caller)
        self._is_first = True
        self.upstream_ms = 0.0
        """Milliseconds that the calls have waited for the upstream."""

    def get(self, name: str, path: Mapping[str, str] | None = None, /, **query: object) -> Any:
        """GET the route `name`. Parameters that are None are left out. Raises Refused."""
        return self._call("GET", name, path or {}, query=query)

    def post(self, name: str, path: Mapping[str, str] | None = None, *, body: Mapping[str, Any]) -> Any:
        """POST with a JSON body. Raises Refused."""
        return self._call("POST", name, path or {}, body=body)

    def upload(self, name: str, *, fields: Mapping[str, str], file: File) -> Any:
        """POST a form with a file. Raises Refused."""
        return self._call("POST", name, {}, form=(fields, file))

    def send(self, body: Mapping[str, Any], *, idempotency_key: str) -> Any:
        """POST /v1/messages, which runs on the process's event loop. Raises Refused."""
        raw = orjson.dumps(body)

        def answer() -> tuple[int, bytes]:
            chosen = self._outer.headers.get(TENANT_HEADER)
            check_tenant_caller(self._caller, chosen, method="POST", scope=KeyScope.MESSAGES)
            if not self._is_first:
                admission = limits.admit(self._caller)
                self._outer.rate_limit_headers = admission.headers  # type: ignore[attr-defined]
                admission.check()
            self._is_first = False
            reply = send_from_thread(
                SendRequest(
                    **reach_of(self._caller),
                    path="/v1/messages",
                    raw=raw,
                    body=orjson.loads(raw),
                    idempotency_key=idempotency_key,
                    request_id=self._request_id,
                )
            )
            return reply.status, reply.body

        return self._finished("POST", "/v1/messages", answer)

    def connected_numbers(self) -> list[str]:
        """The ids of the connected numbers that the caller may use. No call of the API, so that a caller who may send
        needs no scope for numbers.
        """
        numbers = PhoneNumber.objects.for_environment(self._reach["tenant_id"], self.environment)
        if (within := self._reach["phone_number_ids"]) is not None:
            numbers = numbers.filter(phone_number_id__in=within)
        connected = numbers.filter(connection_state=PhoneNumber.State.CONNECTED)
        return list(connected.values_list("phone_number_id", flat=True))

    def is_used(self, *, idempotency_key: str) -> bool:
        """Whether a call that sends one message has the key."""
        used = IdempotencyRecord.objects.filter(key=idempotency_key, started_at__gt=now() - WINDOW)
        return used.filter(tenant_id=self._reach["tenant_id"], environment=self.environment).exists()

    def is_batch(self, *, client_ref: str) -> bool:
        """Whether a batch has the name."""
        batches = Batch.objects.for_environment(self._reach["tenant_id"], self.environment)
        return batches.filter(client_ref=client_ref).exists()

    def _call(
        self,
        method: str,
        name: str,
        path: Mapping[str, str],
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        form: tuple[Mapping[str, str], File] | None = None,
    ) -> Any:
        try:
            # `reverse` quotes the path, but `resolve` and WSGI expect a path that is not quoted.
            address = unquote(reverse(name, kwargs=dict(path)))
            found = resolve(address)
        except NoReverseMatch:
            raise Refused(404, _NOT_FOUND) from None
        if found.url_name != name:
            # An id with a slash in it can lead to another route.
            raise Refused(404, _NOT_FOUND)
        content, content_type = orjson.dumps(body) if body is not None else b"", "application/json"
        if form is not None:
            content, content_type = _multipart(*form)
        environ = {
            **{key: value for key, value in self._outer.META.items() if key not in _OF_THE_OUTER_CALL},
            "REQUEST_METHOD": method,
            "PATH_INFO": address,
            "QUERY_STRING": urlencode(
                {key: value for key, value in (query or {}).items() if value is not None}
            ),
            "CONTENT_TYPE": content_type,
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": BytesIO(content),
        }
        request = WSGIRequest(environ)
        request.request_id = self._request_id  # type: ignore[attr-defined]
        if self._is_first:
            # The rate limit has already counted the request to `/mcp` as the first call. It counts each further call.
            request.rate_limit_headers = getattr(self._outer, "rate_limit_headers", {})  # type: ignore[attr-defined]
        self._is_first = False
        if self._caller.kind == "connected_app":
            # The token is valid only at `/mcp`, which has admitted the caller. So the view gets the admitted caller.
            credentials = self._outer.headers.get("Authorization", ""), self._outer.headers.get(TENANT_HEADER)
            request.admitted_caller = credentials, self._caller  # type: ignore[attr-defined]
        request.resolver_match = found

        def answer() -> tuple[int, bytes]:
            answered = _answer(request, found, len(content))
            self._outer.rate_limit_headers = getattr(request, "rate_limit_headers", {})  # type: ignore[attr-defined]
            return answered

        return self._finished(method, access_log.template_of(found.route), answer)

    def _finished(self, method: str, route: str, answer: Callable[[], tuple[int, bytes]]) -> Any:
        """Make a call, record it in the request log, and return the body of its answer. Raises Refused."""
        started, waited_before = perf_counter(), access_log.upstream_ms()
        try:
            status, answered = answer()
        except Exception as exception:  # noqa: BLE001 - a crash of one tool is an answer; unexpected errors are logged
            reply = error_reply(as_service_error(exception), self._request_id)
            status, answered = reply.status, reply.body
        waited_ms = access_log.upstream_ms() - waited_before
        self.upstream_ms += waited_ms
        access_log.notify_listeners(
            FinishedCall(
                request_id=ids.uuid7(),
                caller=self._caller,
                method=method,
                route=route,
                status=status,
                error_code=access_log.error_code_of(status, answered),
                own_ms=round((perf_counter() - started) * 1000 - waited_ms, 1),
                upstream_ms=round(waited_ms, 1),
            )
        )
        said = orjson.loads(answered) if answered else None
        if status >= 400:
            raise Refused(status, said)
        return said


def _multipart(fields: Mapping[str, str], file: File) -> tuple[bytes, str]:
    """Encode a form. Returns its body and content type."""
    parts: list[tuple[str, Any]] = [*fields.items(), ("file", (file.name, file.content, file.content_type))]
    return encode_multipart_formdata(parts)


def _answer(request: HttpRequest, found: ResolverMatch, body_bytes: int) -> tuple[int, bytes]:
    """Call a view. Returns the status and the body of its answer."""
    limit = limit_of(found.func)
    if body_bytes > limit:
        # A tool call of a few bytes can list many recipients and so become a large batch.
        raise PayloadTooLarge(f"The body would hold more than {limit} bytes.")
    response = found.func(request, *found.args, **found.kwargs)
    if hasattr(response, "render"):
        response = response.render()
    return response.status_code, response.content
