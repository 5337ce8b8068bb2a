"""Errors of the API and of the way to it, as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class WhabuzzError(Exception):
    """Anything that this package raises."""


class NoAnswer(WhabuzzError):
    """No answer came: the connection failed or timed out, also after the repeats that are safe.

    Of a message with an idempotency key the outcome is unknown: send it again with the same key, and it is sent once.
    """


class InvalidSignature(WhabuzzError):
    """A webhook was not signed with this secret, or too long ago."""


class BatchDiffers(WhabuzzError):
    """A `client_ref` belongs to a batch of other messages: those of this call were not sent."""


class StreamEnded(WhabuzzError):
    """The service ended the event stream for good."""


class APIError(WhabuzzError):
    """The API answered with an error. The class says the status, `code` says which error it is."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.request_id: str | None = headers.get("x-service-request-id")
        """The id of the request, for questions to support."""
        self.retry_after: float | None = seconds(headers.get("retry-after"))
        """Seconds after which the call may be made again, where the answer says so."""
        error = body.get("error") if isinstance(body, dict) else None
        error = error if isinstance(error, dict) else {}
        self.source: str | None = body.get("source") if isinstance(body, dict) else None
        """`meta` when WhatsApp refused, otherwise the service's own name."""
        self.code: str | int | None = error.get("code")
        self.message: str = str(error.get("message") or _of_another(status, headers))
        # WhatsApp's errors have the service's words beside them, the service's own have theirs inside.
        words: dict[str, Any] = {**body, **error} if isinstance(body, dict) else {}
        self.hint: str | None = words.get("hint")
        """What to do."""
        self.doc_url: str | None = words.get("doc_url")
        """The page about this error."""
        details = error.get("details") or error.get("error_data")
        self.details: dict[str, Any] = details if isinstance(details, dict) else {}
        super().__init__(self._text())

    def _text(self) -> str:
        """The sentence, WhatsApp's particulars, what to do, and what support asks for."""
        particulars = self.details.get("details")
        request = self.request_id and f"request_id {self.request_id}"
        which = self.status if self.code is None else f"{self.status} {self.code}"
        parts = [f"{which}: {self.message}", particulars, self.hint, request]
        return " | ".join(str(part) for part in parts if part)


class InvalidRequest(APIError):
    """400: the request fails validation; `details["fields"]` names each field."""


class Unauthorized(APIError):
    """401."""


class Forbidden(APIError):
    """403."""


class NotFound(APIError):
    """404: unknown, or another business's."""


class Conflict(APIError):
    """409: the state of the object forbids it."""


class Unprocessable(APIError):
    """422: the idempotency key came with another body, or a webhook endpoint failed its ping."""


class RateLimited(APIError):
    """429, also after the waits that the service asked for; `retry_after` says how long to wait."""


class ServerError(APIError):
    """5xx. Of a 502 `meta_unreachable` the outcome is unknown."""


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
    """The message for an answer that is not of the service: of a proxy, or of another host."""
    question = " Is base_url right?" if status < 500 else ""
    location = headers.get("location")
    return f"The answer is not the service's own.{question}" + (
        f" It redirects to {location}" if location else ""
    )


def seconds(value: str | None) -> float | None:
    """A header's seconds; None for what is not a number."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None
