"""Answers of the upstream as answers of the gateway (upstream fact 2.5; specification 7).

Success passes verbatim. An error keeps its bytes, with `"source": "meta"` added as the first member, and its
status, except: throttling codes become 429 whatever status they came with, code 190 and its kin become 401. A refusal
of the service's own app secret is no caller's error: `AppSecretRefused`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from django.conf import settings
from django.http import HttpResponse

from gateway.api.errors import MetaUnreachable
from gateway.api.reply import Reply
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable

log = structlog.get_logger(__name__)

SHORT_THROTTLES = frozenset({4, 17, 32, 613, 80007, 130429, 131056})
LONG_THROTTLES = frozenset({131048, 131064, 133016})
"""Meta calls these throttling as well, but seconds do not help."""
TOKEN_PROBLEMS = frozenset({0, 102, 190})
PAIR_RATE = 131056
THROUGHPUT = 130429
INVALID_PARAMETER = 100
_PROOF_REFUSED = "Invalid appsecret_proof"
"""What code 100 says of a proof that another secret made (upstream fact 1.8)."""


class AppSecretRefused(MetaUnreachable):
    """The upstream did nothing, because of the service's app secret: it was changed there and not here."""

    message = "The upstream platform refuses this service at the moment. Nothing was sent or changed."
    hint = "The service's operator is told. Repeat in a minute."


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer means: the gateway's status, the headers it adds, and what it says of the token."""

    status: int
    code: int | None
    retry_after: int | None = None

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def token_problem(self) -> bool:
        """The token is invalid or expired: 401, and the account's token state changes."""
        return self.status == 401

    @property
    def throttled(self) -> bool:
        return self.status == 429


def judge(answer: GraphAnswer) -> Verdict:
    """The gateway's view of an answer. Raises MetaUnreachable (502) for one that is no JSON object and for an error
    that says nothing, and AppSecretRefused."""
    body = answer.object()
    if body is None or not (body or answer.ok) or 300 <= answer.status < 400:
        raise MetaUnreachable(
            details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "upstream_status": answer.status}
        )
    if answer.ok:
        return Verdict(answer.status, None)
    found = body.get("error")
    error = found if isinstance(found, dict) else {}
    code = error.get("code")
    if code == INVALID_PARAMETER and _PROOF_REFUSED in str(error.get("message")):
        log.error("app_secret_refused")
        raise AppSecretRefused(
            details={"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": "app_secret_refused"}
        )
    if code in SHORT_THROTTLES or answer.status == 429:
        return Verdict(429, code, 6 if code == PAIR_RATE else _regain_seconds(answer.headers) or 1)
    if code in LONG_THROTTLES:
        return Verdict(429, code, 3600)
    if code in TOKEN_PROBLEMS or answer.status == 401:
        return Verdict(401, code)
    return Verdict(answer.status, code)


def error_body(body: bytes) -> bytes:
    """The upstream's error bytes with `"source": "meta"` as the first member."""
    start = body.index(b"{") + 1
    rest = body[start:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return body[:start] + b'"source":"meta"' + comma + rest


def reply_of(answer: GraphAnswer, verdict: Verdict) -> Reply:
    """The answer that the caller gets."""
    if verdict.ok:
        return Reply(answer.status, {"Content-Type": _content_type(answer.headers)}, answer.body)
    headers = {"Content-Type": "application/json", "X-Service-Error-Source": "meta"}
    if verdict.retry_after is not None:
        headers["Retry-After"] = str(verdict.retry_after)
    if verdict.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Reply(verdict.status, headers, error_body(answer.body))


def passed_through(answer: GraphAnswer, verdict: Verdict | None = None) -> HttpResponse:
    """The same as Django's. Raises MetaUnreachable for what is no usable answer."""
    return reply_of(answer, verdict or judge(answer)).as_response()


def unreachable(
    error: UpstreamUnreachable, text: str | None = None, *, hint: str | None = None
) -> MetaUnreachable:
    """The 502 for a call that got no answer (send rule 7), in the words of its operation."""
    details = {"timeout_ms": settings.UPSTREAM_TIMEOUT_MS, "reason": error.reason}
    return MetaUnreachable(text, hint=hint, details=details)


def _content_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type") or "application/json"


def _regain_seconds(headers: Mapping[str, str]) -> int | None:
    """The longest `estimated_time_to_regain_access` (minutes) of X-Business-Use-Case-Usage, in seconds."""
    try:
        usage: Any = orjson.loads(headers.get("X-Business-Use-Case-Usage") or b"{}")
        minutes = [
            limit.get("estimated_time_to_regain_access", 0) for limits in usage.values() for limit in limits
        ]
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return None
    longest = max((value for value in minutes if isinstance(value, int | float)), default=0)
    return int(longest * 60) or None
