"""Codes and tokens of the Graph API (upstream fact 1.8): exchange a code, look up a token's permissions.

Called by the onboarding and the token health of `phone_numbers`. A code works once and is valid for seconds, so its
exchange is never retried.

These calls carry the app secret itself. If Meta rejects it, the caller is not at fault, and they raise
AppSecretRefused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.meta_errors import TOKEN_PROBLEMS
from gateway.upstream.blocking_client import request
from gateway.upstream.calls import GraphAnswer, app_secret_refused, platform
from gateway.upstream.notifications.lossless_json import member

MESSAGING = "whatsapp_business_messaging"
MANAGEMENT = "whatsapp_business_management"
MANAGE_EVENTS = "whatsapp_business_manage_events"
_APP_REFUSED = 101
"""Meta's code for an app id or secret that it does not accept."""
_SECRET_REFUSED = "client secret"
"""The words of code 1 for a wrong secret (upstream fact 1.8)."""


def exchange_code(*, environment: str, code: str) -> GraphAnswer:
    """`GET /oauth/access_token`: the token for an embedded sign-up code, in `access_token`."""
    upstream = platform(environment)
    answer = request(
        environment=environment,
        method="GET",
        path="oauth/access_token",
        token=None,
        params={"client_id": upstream.app_id, "client_secret": upstream.app_secret, "code": code},
    )
    code_of_error, message = _error_in(answer)
    if code_of_error == _APP_REFUSED or (code_of_error == 1 and _SECRET_REFUSED in message):
        raise app_secret_refused()
    return answer


def debug_token(*, environment: str, token: str) -> GraphAnswer:
    """`GET /debug_token` with the app's own token: the owner and permissions of the given token.

    For any given token that does not work, the answer is 200. So an error about a token is about the app's own token.
    """
    answer = request(
        environment=environment,
        method="GET",
        path="debug_token",
        token=platform(environment).app_token,
        params={"input_token": token},
    )
    code_of_error, _ = _error_in(answer)
    if code_of_error == _APP_REFUSED or code_of_error in TOKEN_PROBLEMS:
        raise app_secret_refused()
    return answer


def _error_in(answer: GraphAnswer) -> tuple[int | None, str]:
    """The code and the message of an error. None and an empty text for a successful answer."""
    error = member(answer.json(), "error") if not answer.ok else {}
    code = error.get("code")
    return code if type(code) is int else None, str(error.get("message"))


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
