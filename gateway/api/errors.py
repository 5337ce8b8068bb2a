"""Errors that the service itself raises. Only this module turns an exception into a response.

A `Reply` is a finished response, independent of any framework: it can be stored, replayed or sent. Every error names
its source in the body and in `X-Service-Error-Source` (specification 7). Errors of Meta are not built here: their bytes
pass through (`gateway/upstream/calls.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar

import structlog
from django.conf import settings
from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions as drf

from gateway import ids
from gateway.api.json import dumps
from gateway.database.transactions import error_fields, is_outage


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, headers and exact bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def as_response(self) -> HttpResponse:
        """The same response as Django's class."""
        return HttpResponse(self.body, status=self.status, headers=dict(self.headers))


log = structlog.get_logger(__name__)


class ServiceError(Exception):
    """An error response of the service: HTTP status, code, and sentences for the caller.

    `message` says what is wrong, `hint` what to do. `repeat` says on the error page whether the request may be sent
    again.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    message: ClassVar[str] = "Something went wrong in the service."
    hint: ClassVar[str] = "Report the request_id to us. Repeat a message only with the same Idempotency-Key."
    repeat: ClassVar[str] = "only with the same key"

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.text = message or self.message
        self.advice = hint or self.hint
        self.details = details
        self.headers = headers or {}
        super().__init__(self.text)


class InvalidRequest(ServiceError):
    """The request fails validation. `details.fields` names each field and what is wrong with it.

    The default message is the sentence of the first field.
    """

    status = 400
    code = "invalid_request"
    message = "The request is not valid."
    hint = "Correct the fields that details.fields names, then send the request again."
    repeat = "after correcting it"

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        fields = (details or {}).get("fields", {})
        for name, problems in fields.items():
            message = message or f"{name}: {problems[0]}"
        if not fields:
            hint = hint or "Correct what the message names, then send the request again."
        super().__init__(message, hint=hint, details=details, headers=headers)

    @classmethod
    def of(cls, /, **fields: str) -> "InvalidRequest":
        """The error for single fields: `InvalidRequest.of(limit="Must be between 1 and 200.")`."""
        return cls(details={"fields": {name: [problem] for name, problem in fields.items()}})


class Unauthorized(ServiceError):
    status = 401
    code = "unauthorized"
    message = "Missing or invalid credentials."
    hint = "Send the header `Authorization: Bearer <API key>`."
    repeat = "with valid credentials"

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(ServiceError):
    status = 403
    code = "forbidden"
    message = "These credentials may not use this operation."
    hint = "Tenant operations need a tenant's key, /v1/tenants a platform key, /v1/admin a console token of staff."
    repeat = "no"


class TenantNotApproved(ServiceError):
    status = 403
    code = "tenant_not_approved"
    message = "This account is not approved yet. Until it is, only GET /v1/tenant works."
    hint = "Wait for the decision, which we send by email. GET /v1/tenant shows the status."
    repeat = "after the approval"


class TenantSuspended(ServiceError):
    status = 403
    code = "tenant_suspended"
    message = "This account is suspended."
    hint = "Contact our support. Events are kept, and are delivered once the suspension ends."
    repeat = "after the suspension"


class NotFound(ServiceError):
    status = 404
    code = "not_found"
    message = "There is no such resource."
    hint = "Check the id, and that the key belongs to the right business and environment."
    repeat = "no"


class MethodNotAllowed(ServiceError):
    status = 405
    code = "method_not_allowed"
    message = "This resource does not support the method of the request."
    hint = "The Allow header lists the methods it supports. All operations, with their paths, are in /v1/openapi.json."
    repeat = "no"

    @classmethod
    def of(cls, *methods: str) -> "MethodNotAllowed":
        """The error of a resource that supports only these methods."""
        named = ", ".join(method for method in methods if method != "OPTIONS")
        return cls(
            f"This resource supports only {named}.",
            headers={"Allow": ", ".join(methods)},
        )


class RequestTimeout(ServiceError):
    """The request arrived more slowly than allowed."""

    status = 408
    code = "request_timeout"
    message = "The request did not arrive in time."
    hint = "Send the request again over a faster connection. Upload large files with POST /v1/media."
    repeat = "yes"


class Conflict(ServiceError):
    """The state of the object forbids the action."""

    status = 409
    code = "conflict"
    message = "The state of this resource does not allow this request."
    hint = "Read the resource to see its state, then decide."
    repeat = "after the state has changed"


class PayloadTooLarge(ServiceError):
    status = 413
    code = "payload_too_large"
    message = "The request body is too large."
    hint = "Split the request. Upload files with POST /v1/media, and send many messages with POST /v1/messages/batch."
    repeat = "no"


class UriTooLong(ServiceError):
    status = 414
    code = "uri_too_long"
    message = "The address of the request is too long."
    hint = "Send fewer query parameters."
    repeat = "no"


class UnsupportedMediaType(ServiceError):
    status = 415
    code = "unsupported_media_type"
    message = "This operation does not accept the content type of the request."
    hint = "Send `Content-Type: application/json`, or multipart/form-data for an upload."
    repeat = "after correcting it"


class RateLimited(ServiceError):
    status = 429
    code = "rate_limited"
    message = "Too many requests."
    hint = "Wait as long as Retry-After says. To send many messages, use POST /v1/messages/batch."
    repeat = "yes, after Retry-After"


class TooManyInFlight(ServiceError):
    """The tenant or the number has reached the limit of waiting calls of one process (`limits.py`)."""

    status = 429
    code = "too_many_in_flight"
    message = "Too many calls of this business are waiting for an answer."
    hint = "Wait as long as Retry-After says. Make fewer calls at once."
    repeat = "yes, after Retry-After"

    def __init__(self, message: str | None = None, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, details=details, headers={"Retry-After": "1"})


class HeadersTooLarge(ServiceError):
    status = 431
    code = "headers_too_large"
    message = "The headers of the request are too large."
    hint = "Send fewer or shorter headers."
    repeat = "no"


class MetaUnreachable(ServiceError):
    """The Graph API returned no usable answer. The outcome of a command is unknown (send rule 7)."""

    status = 502
    code = "meta_unreachable"
    message = "WhatsApp gave no usable answer."
    hint = "You may repeat a read. A change may have been made: read the object before you repeat the change."
    repeat = "a read, yes; a message, only if no message.status has come for it"


class ServiceUnavailable(ServiceError):
    """Too much work waits, or the database is away. A change may have been stored, if only the answer to its COMMIT was
    lost. A message was not sent.
    """

    status = 503
    code = "service_unavailable"
    message = "The service cannot reach its database right now."
    hint = (
        "Repeat a read after Retry-After, a message with the same Idempotency-Key, a batch with the same client_ref. "
        "Any other change may have been made: read the object before you repeat the change."
    )
    repeat = "a read, a message or a batch with `client_ref`, yes; another change, only if it was not made"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, headers={"Retry-After": "1"})


def error_kinds(kind: type[ServiceError] = ServiceError) -> list[type[ServiceError]]:
    """The class `kind` and all loaded classes derived from it."""
    return [kind, *(found for narrower in kind.__subclasses__() for found in error_kinds(narrower))]


def error_reply(error: ServiceError, request_id: str | None) -> Reply:
    """The body and headers of a service error (specification 7)."""
    body = {
        "source": settings.SERVICE_NAME,
        "error": {
            "code": error.code,
            "message": error.text,
            "details": error.details,
            "hint": error.advice,
            "doc_url": f"{settings.BASE_URL}/errors#{error.code}",
        },
        "request_id": request_id,
    }
    headers = {
        "Content-Type": "application/json",
        "X-Service-Error-Source": settings.SERVICE_NAME,
        **error.headers,
    }
    return Reply(error.status, headers, dumps(body))


def error_response(error: ServiceError, request: HttpRequest | None) -> HttpResponse:
    """The service error as a Django response."""
    return error_reply(error, getattr(request, "request_id", None)).as_response()


def exception_handler(exception: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """REST framework's hook: turn every exception of a view into a response in the service's form."""
    request = context.get("request")
    error = as_service_error(exception, view=context.get("view"))
    if request is not None and error.advice == NotFound.hint:
        error.advice = _place_of_id(request.path) or error.advice
    return error_response(error, getattr(request, "_request", request))


_PLACES = {
    "wamid.": "/v1/messages/",
    ids.BATCH: "/v1/messages/batch/",
    ids.SCHEDULED: "/v1/messages/scheduled/",
    ids.EVENT: "/v1/events/",
    ids.DELIVERY: "/v1/webhook-deliveries/",
    ids.CONNECT_SESSION: "/v1/connect-sessions/",
    ids.REQUEST: "/v1/requests/",
}
"""The path of each kind of object, by the prefix of its ids."""


def _place_of_id(path: str) -> str | None:
    """A sentence that names the right path, if an id in this path belongs to another path. None if all ids fit."""
    for part in path.split("/"):
        for beginning, place in _PLACES.items():
            if part.startswith(beginning) and path.partition(part)[0] != place:
                return f"An id that begins with `{beginning}` belongs to {place}{{id}}."
    return None


def as_service_error(exception: Exception, view: Any = None) -> ServiceError:
    """The service error for any exception. An unexpected exception is logged and becomes a 500.

    `view` is REST framework's view, which knows the supported methods and content types.
    """
    match exception:
        case ServiceError():
            return exception
        case drf.ValidationError():
            return InvalidRequest(details={"fields": _fields(exception.detail)})
        case MultiPartParserError() | drf.ParseError(__context__=MultiPartParserError()):
            return InvalidRequest(
                "The body is not a multipart form: let your HTTP library set Content-Type with its boundary."
            )
        case drf.ParseError():
            return InvalidRequest(str(exception.detail))
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            return Unauthorized()
        case drf.PermissionDenied() | PermissionDenied():
            return Forbidden()
        case drf.NotFound() | Http404():
            return NotFound()
        case drf.MethodNotAllowed():
            return _method_not_allowed(view)
        case drf.UnsupportedMediaType():
            return _unsupported_media_type(view)
        case RequestDataTooBig():
            return PayloadTooLarge(str(exception))
        case UnreadablePostError():
            return InvalidRequest("The body could not be read to its end.")
        case SuspiciousOperation():
            return InvalidRequest()
        case _ if is_outage(exception):
            log.warning("database_unreachable", **error_fields(exception))
            return ServiceUnavailable()
    log.error("unhandled_exception", exc_info=exception)
    return ServiceError()


def _method_not_allowed(view: Any) -> MethodNotAllowed:
    if view is None:
        return MethodNotAllowed()
    return MethodNotAllowed.of(*view.allowed_methods)


def _unsupported_media_type(view: Any) -> UnsupportedMediaType:
    if view is None:
        return UnsupportedMediaType()
    wanted = " or ".join(parser.media_type for parser in view.get_parsers())
    hint = f"Send `Content-Type: {wanted}`."
    if wanted == "multipart/form-data":
        hint = (
            "Send the file as multipart/form-data, and let your HTTP library set Content-Type with its boundary. "
            "A link to a file belongs in a message, not in an upload."
        )
    return UnsupportedMediaType(f"This operation takes {wanted}.", hint=hint)


def _fields(detail: Any) -> dict[str, list[str]]:
    """Flatten REST framework's nested error detail to dotted field names with lists of sentences."""
    flat: dict[str, list[str]] = {}

    def walk(path: str, node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                walk(f"{path}.{key}" if path else str(key), value)
        elif isinstance(node, list) and any(isinstance(item, dict | list) for item in node):
            for index, item in enumerate(node):
                walk(f"{path}[{index}]", item)
        else:
            flat.setdefault(path or "body", []).extend(
                str(item) for item in (node if isinstance(node, list) else [node])
            )

    walk("", detail)
    return flat


def answering_errors(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Wrap a plain Django view so that its exceptions become responses in the service's form."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Exception as exception:  # noqa: BLE001 - every exception becomes an answer; unexpected ones are logged
            return error_response(as_service_error(exception), request)

    return wrapped


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Django's `handler400` for API paths."""
    if isinstance(exception, DisallowedHost):
        wrong_host = "The Host header names neither the host of BASE_URL nor that of APP_URL."
        return error_response(InvalidRequest(wrong_host), request)
    return error_response(InvalidRequest(), request)


def server_error(request: HttpRequest, exception: BaseException | None = None) -> HttpResponse:
    """Django's `handler500` for API paths: an error outside of a REST framework view."""
    return error_response(
        ServiceUnavailable() if exception is not None and is_outage(exception) else ServiceError(), request
    )
