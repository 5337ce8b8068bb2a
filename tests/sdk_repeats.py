"""Which calls both SDKs repeat after an answer: reads, calls with an idempotency key, named batches, and others."""

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


KNOWN_AGAIN = "read keyed named"
"""The calls whose repeat changes nothing, even if the first try was carried out."""
ALL = f"{KNOWN_AGAIN} unnamed other ignored"
ANSWERS = [
    Answered(ALL, 429),
    Answered(ALL, 429, retry_after="60"),
    # The answer to the database's COMMIT may have been lost.
    Answered(KNOWN_AGAIN, 503, retry_after="1"),
    Answered(KNOWN_AGAIN, 500),
    Answered(KNOWN_AGAIN, 502),
    Answered(KNOWN_AGAIN, 504),
    Answered(KNOWN_AGAIN, 409, code="idempotency_conflict"),
    Answered("", 502, is_replayed=True),
    Answered("", 429, retry_after="61"),
    Answered("", 409, code="conflict"),
    *(Answered("", status) for status in (400, 401, 403, 404, 422, 503)),
]
BATCH = "/v1/messages/batch"
CALLS: dict[str, tuple[str, str, str | None, dict[str, Any]]] = {
    "read": ("GET", "/v1/webhooks", None, {}),
    "keyed": ("POST", "/v1/messages", "k1", {}),
    "named": ("POST", BATCH, None, {"client_ref": "news"}),
    "unnamed": ("POST", BATCH, None, {"from": "1"}),
    "other": ("POST", "/v1/webhooks", None, {}),
    "ignored": ("POST", BATCH, "k2", {}),
}
"""The method, path, idempotency key and body of each kind of call. A batch ignores an idempotency key."""
