"""Errors of sending: what forbids a message before the upstream is called."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gateway.api.errors import ServiceError

_RECONNECT = "Connect the account again: POST /v1/connect-sessions."


class NumberNotConnected(ServiceError):
    """The number to send from is not connected; the hint is the repair of `details.connection_detail`."""

    status = 409
    code = "number_not_connected"
    message = "This number is not connected."
    hint = "GET /v1/numbers/{phone_number_id} says why in connection_detail."
    repeat = "after the number is connected"
    repairs: ClassVar[Mapping[str, str]] = {
        "not_subscribed": "Subscribe its account: POST /v1/numbers/{phone_number_id}/subscribe.",
        "not_registered": "Register it with its six-digit PIN: POST /v1/numbers/{phone_number_id}/register.",
        "deregistered": "Register it again with its six-digit PIN: POST /v1/numbers/{phone_number_id}/register.",
        "no_verified_endpoint": "Create a webhook endpoint with POST /v1/webhooks, or repeat the ping of one that is "
        "pending: POST /v1/webhooks/{endpoint_id}/verify.",
        "token_invalid": _RECONNECT,
        "account_removed": _RECONNECT,
        "account_restricted": "Meta restricts this account: see Account quality in Meta's Business Manager.",
    }

    def __init__(self, message: str | None = None, *, details: Mapping[str, Any] | None = None) -> None:
        found = details or {}
        detail = found.get("connection_detail")
        repair = self.repairs.get(str(detail), self.hint)
        super().__init__(
            message or (f"This number is not connected: {detail}." if detail else None),
            hint=repair.replace("{phone_number_id}", str(found.get("phone_number_id", "{phone_number_id}"))),
            details=details,
        )
