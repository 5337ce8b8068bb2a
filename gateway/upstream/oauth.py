"""Codes and tokens of the Graph API (upstream fact 1.8): exchange a code, look up a token's permissions.

Called by the onboarding and the token health of `phone_numbers`. A code works once and is valid for seconds, so its
exchange is never retried.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.upstream.blocking_client import request
from gateway.upstream.calls import GraphAnswer, platform

MESSAGING = "whatsapp_business_messaging"
MANAGEMENT = "whatsapp_business_management"
MANAGE_EVENTS = "whatsapp_business_manage_events"


def exchange_code(*, environment: str, code: str) -> GraphAnswer:
    """`GET /oauth/access_token`: the token for an embedded sign-up code, in `access_token`."""
    upstream = platform(environment)
    return request(
        environment=environment,
        method="GET",
        path="oauth/access_token",
        token=None,
        params={"client_id": upstream.app_id, "client_secret": upstream.app_secret, "code": code},
    )


def debug_token(*, environment: str, token: str) -> GraphAnswer:
    """`GET /debug_token` with the app's own token: the owner and permissions of the given token."""
    return request(
        environment=environment,
        method="GET",
        path="debug_token",
        token=platform(environment).app_token,
        params={"input_token": token},
    )


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The facts about a token that `debug_token` reports."""

    valid: bool
    app_id: str
    granular_scopes: tuple[Mapping[str, Any], ...]
    expires_at: datetime | None
    data_access_expires_at: datetime | None

    def opens(self, scope: str, waba_id: str) -> bool:
        """Whether the scope is granted for the account. A scope without `target_ids` is granted for all assets."""
        return any(waba_id in targets if targets is not None else True for targets in self._targets(scope))

    def opens_only(self, scope: str, waba_id: str) -> bool:
        """Whether the scope is granted for this account only."""
        targets = list(self._targets(scope))
        return bool(targets) and all(target == {waba_id} for target in targets)

    def _targets(self, scope: str) -> Iterator[set[str] | None]:
        for granted in self.granular_scopes:
            if granted.get("scope") == scope:
                targets = granted.get("target_ids")
                yield {str(target) for target in targets} if isinstance(targets, list) else None


def token_facts(answer: GraphAnswer) -> TokenFacts:
    """The facts in an answer of `debug_token`. Missing or malformed members count as not granted."""
    data = answer.json().get("data")
    data = data if isinstance(data, dict) else {}
    granted = data.get("granular_scopes")
    return TokenFacts(
        valid=data.get("is_valid") is True,
        app_id=str(data.get("app_id", "")),
        granular_scopes=tuple(
            scope for scope in (granted if isinstance(granted, list) else []) if isinstance(scope, dict)
        ),
        expires_at=_moment(data.get("expires_at")),
        data_access_expires_at=_moment(data.get("data_access_expires_at")),
    )


def _moment(seconds: object) -> datetime | None:
    """A moment from seconds since the epoch. None for 0, which means never, and for values that are not a moment."""
    if isinstance(seconds, int) and 0 < seconds < 253_402_300_800:
        return datetime.fromtimestamp(seconds, UTC)
    return None
