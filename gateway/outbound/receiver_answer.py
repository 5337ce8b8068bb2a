"""Outcome of a request to a customer's address, in the terms that customers see.

`gateway.outbound.client` fills an `Attempt` while a request is under way and turns it into an `Answer`: the status,
the beginning of the body, the wait that the receiver asked for, and one word of `last_error` for whatever
went wrong (specification 2).
"""

import errno
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from gateway.http1 import AnswerTooLargeError, BrokenOffError
from gateway.outbound.urls import InvalidUrlError

READ_LIMIT = 16 * 1024
"""Bytes of a customer's answer that are read."""

_MAX_RETRY_AFTER = 30 * 86400.0


class UnknownNameError(Exception):
    """A host name has no address."""


class ProxyAwayError(BrokenOffError):
    """The egress proxy cannot be reached, or refuses the service's credentials: the receiver was not asked."""


PROXY_AWAY = "egress_proxy_away"


class StaleError(BrokenOffError):
    """The receiver closed the connection before any byte of an answer."""


class Answer(msgspec.Struct, frozen=True):
    """Outcome of one request.

    `status` is the HTTP status, None when none came. `ms` is the time spent, in milliseconds. `body` is the
    body of the answer as it was sent, never decompressed, at most the read limit. Of an answer that was a failure,
    `retry_after` is the wait that the receiver asked for, in seconds, and `fields` are the headers.

    `error` is None when the answer was a 2xx and was read to its end or to the limit: a receiver that answers
    2xx with a long body has got the event. Otherwise it is one of
    - http_3xx, http_4xx, http_5xx: the status, whatever became of the body
    - timeout: a deadline passed, also in the middle of the body of a 2xx
    - dns_error: the name has no address
    - blocked_address: every address of the name is not public, or the host is written in a form that is not
      followed, such as `2130706433`
    - tls_error: no TLS, or a certificate that is not valid
    - response_too_large: headers beyond the bounds
    - connection_error: no connection, one that broke off, also in the middle of the body of a 2xx, or an
      answer that is no HTTP
    - egress_proxy_away: the service's own proxy is away; it says nothing of the receiver
    """

    status: int | None
    error: str | None
    ms: int
    body: bytes
    retry_after: float | None
    fields: Sequence[tuple[bytes, bytes]] = ()

    @property
    def ok(self) -> bool:
        """Whether the receiver took the request: a complete 2xx answer."""
        return self.error is None

    @property
    def concerns_receiver(self) -> bool:
        """Whether it says anything of the receiver: not when the service's own egress proxy is away."""
        return self.error != PROXY_AWAY


@dataclass(slots=True)
class Attempt:
    """Progress of a request under way, also of one that fails.

    `started`: by the clock of the event loop. `opened`: a public address was called for it. `blocked`: an address
    was refused.
    """

    started: float = field(default_factory=time.monotonic)
    opened: bool = False
    blocked: bool = False
    status: int | None = None
    retry_after: float | None = None
    body: bytearray = field(default_factory=bytearray)
    fields: Sequence[tuple[bytes, bytes]] = ()

    def answer(self, failure: Exception | None) -> Answer:
        """The answer, given the exception that ended the request, if one did."""
        error = _refusal(self.status)
        if error is None and failure is not None:
            error = self._reason(failure)
        ms = round((time.monotonic() - self.started) * 1000)
        fields = self.fields if error else ()
        return Answer(self.status, error, ms, bytes(self.body), self.retry_after, fields)

    def _reason(self, failure: Exception) -> str:
        if isinstance(failure, TimeoutError) or getattr(failure, "errno", None) == errno.ETIMEDOUT:
            return "timeout"
        if self.blocked and not self.opened:
            return "blocked_address"
        match failure:
            case InvalidUrlError():
                return "blocked_address"
            case UnknownNameError():
                return "dns_error"
            case ssl.SSLError():
                return "tls_error"
            case AnswerTooLargeError():
                return "response_too_large"
            case ProxyAwayError():
                return PROXY_AWAY
            case _:
                return "connection_error"


def _refusal(status: int | None) -> str | None:
    if status is None or 200 <= status < 300:
        return None
    if status < 200:
        return "connection_error"  # 101 Switching Protocols, which nobody asked for
    return f"http_{min(status // 100, 5)}xx"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `Retry-After` (RFC 9110, 10.2.3), at most 30 days; None where it cannot be read."""
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]+", value):
        return min(float(value), _MAX_RETRY_AFTER)
    until = _http_date(value)
    if until is None:
        return None
    # By the receiver's own clock where it tells its time: the one of this machine may be off.
    now = _http_date(headers.get("Date", "")) or datetime.now(UTC)
    return min(max((until - now).total_seconds(), 0.0), _MAX_RETRY_AFTER)


def _http_date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
