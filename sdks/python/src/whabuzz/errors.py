"""Exceptions: errors in the API's answers, and calls without an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WhabuzzError(Exception):
    """The base class of all exceptions of this package."""


class NoAnswer(WhabuzzError):
    """No answer came: the connection failed or timed out, even after all safe retries.

    The outcome is unknown. A message can be sent again with the same idempotency key, `idempotency_key`. The customer
    then gets it only once.
    """

    idempotency_key: str | None = None
    """The key of the call: the caller's own, or a random one. None for a call that knows no keys."""


class InvalidSignature(WhabuzzError):
    """A webhook was not signed with this secret, or its signature is too old."""


class BatchDiffers(WhabuzzError):
    """The `client_ref` already belongs to a batch of other messages. The messages of this call were not sent."""


class StreamEnded(WhabuzzError):
    """The service ended the event stream for good."""


class APIError(WhabuzzError):
    """The API answered with an error. Subclasses stand for HTTP statuses, and `code` names the error."""

    idempotency_key: str | None = None
    """The key of the call: the caller's own, or a random one. None for a call that knows no keys."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.request_id: str | None = headers.get("x-service-request-id")
        """The id of the request, for questions to support."""
        self.retry_after: float | None = seconds(headers.get("retry-after"))
        """The seconds after which the call may be repeated. None if the answer does not say."""
        error = body.get("error") if isinstance(body, dict) else None
        error = error if isinstance(error, dict) else {}
        self.source: str | None = body.get("source") if isinstance(body, dict) else None
        """`meta` for an error of WhatsApp, otherwise the service's own name."""
        self.code: str | int | None = error.get("code")
        self.message: str = str(error.get("message") or _of_another(status, headers))
        # `hint` and `doc_url` are inside an error of the service. For an error of WhatsApp, they are beside `error`.
        words: dict[str, Any] = {**body, **error} if isinstance(body, dict) else {}
        self.hint: str | None = words.get("hint")
        """What to do about the error."""
        self.doc_url: str | None = words.get("doc_url")
        """The URL of the page about this error."""
        details = error.get("details") or error.get("error_data")
        self.details: dict[str, Any] = details if isinstance(details, dict) else {}
        super().__init__(self._text())

    def _text(self) -> str:
        """The text of the exception: status, code, message, WhatsApp's details, hint, and request id for support."""
        particulars = self.details.get("details")
        request = self.request_id and f"request_id {self.request_id}"
        which = self.status if self.code is None else f"{self.status} {self.code}"
        parts = [f"{which}: {self.message}", particulars, self.hint, request]
        return " | ".join(str(part) for part in parts if part)


class InvalidRequest(APIError):
    """400: the request is not valid. `details["fields"]` names each invalid field."""


class Unauthorized(APIError):
    """401: the key is missing, unknown or no longer valid."""


class Forbidden(APIError):
    """403: the key may not do this."""


class NotFound(APIError):
    """404: the object does not exist, or belongs to another business."""


class Conflict(APIError):
    """409: the state of the object forbids the call."""


class Unprocessable(APIError):
    """422: the idempotency key was used with another body before, or a webhook endpoint failed its ping."""


class RateLimited(APIError):
    """429: too many calls, even after the retries. `retry_after` says how long to wait."""


class ServerError(APIError):
    """5xx: an error of the service. After a 502 `meta_unreachable` the outcome of the call is unknown.

    After a 503 a message was not sent, but another change may have been made.
    """


_BY_STATUS: dict[int, type[APIError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Unprocessable,
    429: RateLimited,
}


def error_of(status: int, body: Any, headers: Mapping[str, str]) -> APIError:
    """The exception for an answer."""
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else APIError)
    return kind(status, body, headers)


def _of_another(status: int, headers: Mapping[str, str]) -> str:
    """The message for an answer that does not come from the service but from a proxy or another host."""
    question = " Is base_url right?" if status < 500 else ""
    location = headers.get("location")
    return f"The answer is not the service's own.{question}" + (
        f" It redirects to {location}" if location else ""
    )


def seconds(value: str | None) -> float | None:
    """The seconds in a header, at least 0. None when the header is missing or not a number."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None
