"""Explanations of connection problems for pages and mails: sentences and repairs. Pure functions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

# --- Connection details.


class Explained(NamedTuple):
    """The explanation of a connection detail. `repair` names the form or link that the page shows, if any."""

    reason: str
    repair: str | None


_DETAILS = {
    None: Explained("It can send and receive.", None),
    "no_verified_endpoint": Explained(
        "Nobody receives its messages yet: turn conversations on, or add a webhook endpoint of your server.",
        "endpoint",
    ),
    "not_registered": Explained("It is not registered for sending yet.", "register"),
    "deregistered": Explained("It was deregistered. Register it again to send.", "register"),
    "not_subscribed": Explained("Its account does not send events to the gateway.", "subscribe"),
    "token_invalid": Explained("Meta refuses the token of its account.", "connect"),
    "account_removed": Explained("The access to its account was withdrawn at Meta.", "connect"),
    "account_restricted": Explained(
        "Meta restricted its account. Meta's Business Support can lift this.", None
    ),
}


def explained(detail: str | None) -> Explained:
    """Explain a connection detail."""
    return _DETAILS.get(detail, Explained(f"The gateway reports {detail}.", None))


# --- Failed connect sessions: what the sign-up lacked, and what to do differently.

_CANCELLED = "You left the sign-up before its end."
_PERMISSIONS = "Connect again, choose the account itself, and leave every permission on."
_CODE = "The result of a sign-up works only once, for a few minutes. Connect again."


def explained_failure(error: Mapping[str, Any] | None) -> str:
    """Explain the error `{source, code, message}` of a failed session. Without an error, the explanation says that
    nobody finished the sign-up.
    """
    if not error or error["code"] == "cancelled":
        return _CANCELLED
    said = str(error["message"]).rstrip(".")
    if error["code"] == "signup_error":
        return f"Meta ended the sign-up: {said}. Repair that at Meta, then connect again."
    if error["source"] == "meta":
        return f"Meta refused: {said}. {_CODE}"
    if error["code"] == "conflict":
        return f"{said}. Choose another account, or have this one released first."
    if error["code"] == "invalid_request":
        return f"{said}. {_PERMISSIONS}"
    return f"{said}."
