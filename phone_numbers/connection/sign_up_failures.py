"""Failed connect sessions explained to the customer: what the sign-up lacked, and what to do differently. Pure."""

from collections.abc import Mapping
from typing import Any

_CANCELLED = "You left the sign-up before its end."
_PERMISSIONS = "Connect again, choose the account itself, and leave every permission on."
_CODE = "What the sign-up gives works once, for a few minutes. Connect again."


def explained_failure(error: Mapping[str, Any] | None) -> str:
    """The error of a failed session in words, from `{source, code, message}`; None means that nobody finished it."""
    if not error or error["code"] == "cancelled":
        return _CANCELLED
    said = str(error["message"]).rstrip(".")
    if error["code"] == "signup_error":
        return f"The platform ended the sign-up: {said}. Repair that on the platform, then connect again."
    if error["source"] == "meta":
        return f"The platform refused: {said}. {_CODE}"
    if error["code"] == "conflict":
        return f"{said}. Choose another account, or have this one released first."
    if error["code"] == "invalid_request":
        return f"{said}. {_PERMISSIONS}"
    return f"{said}."
