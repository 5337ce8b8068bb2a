"""Which calls both SDKs repeat after an answer: reads, calls with an idempotency key, and other calls."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answered:
    """An answer of the service, and the kinds of calls that are repeated after it."""

    repeated: str
    status: int
    retry_after: str | None = None
    code: str | None = None
    is_replayed: bool = False

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Idempotent-Replayed": "true"} if self.is_replayed else {}
        return headers | ({"Retry-After": self.retry_after} if self.retry_after else {})

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code}}


ANSWERS = [
    Answered("read keyed other", 429),
    Answered("read keyed other", 429, retry_after="60"),
    Answered("read keyed other", 503, retry_after="1"),
    Answered("read keyed", 500),
    Answered("read keyed", 502),
    Answered("read keyed", 504),
    Answered("read keyed", 409, code="idempotency_conflict"),
    Answered("", 502, is_replayed=True),
    Answered("", 429, retry_after="61"),
    Answered("", 409, code="conflict"),
    *(Answered("", status) for status in (400, 401, 403, 404, 422, 503)),
]
CALLS = {"read": ("GET", None), "keyed": ("POST", "k1"), "other": ("POST", None)}
"""The method and the idempotency key of each kind of call."""
