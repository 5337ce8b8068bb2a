"""Errors in the Graph API's two forms: the body of a refused call, and the entry of a failed status.

Handlers raise `GraphError(code)`, which `graph/dispatch.py` turns into the answer. Titles and HTTP statuses follow
Meta's error page. Meta's real answers sometimes differ from that page, so clients must decide only by `code`.
"""

import secrets
from typing import Any

HREF = "https://developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes/"

# code: (HTTP status, title). A code that is missing here gets status 400 and a plain title.
CATALOGUE: dict[int, tuple[int, str]] = {
    0: (401, "AuthException"),
    1: (400, "API Unknown"),
    2: (503, "API Service"),
    3: (500, "API Method"),
    4: (400, "Application request limit reached"),
    10: (403, "Permission Denied"),
    33: (400, "Parameter value is not valid"),
    100: (400, "Invalid parameter"),
    101: (400, "Error validating application. Cannot get application info due to a system error."),
    104: (401, "An access token is required to request this resource."),
    190: (401, "Invalid OAuth access token"),
    200: (403, "Permissions error"),
    368: (403, "Temporarily blocked for policies violations"),
    2200: (400, "Callback verification failed"),
    80007: (
        400,
        "There have been too many calls to this WhatsApp Business account. Wait a bit and try again.",
    ),
    130403: (400, "Recipient blocked by the business"),
    130429: (400, "Rate limit hit"),
    130472: (400, "User's number is part of an experiment"),
    130497: (403, "Business account is restricted from messaging users in this country"),
    131000: (500, "Something went wrong"),
    131005: (403, "Access denied"),
    131008: (400, "Required parameter is missing"),
    131009: (400, "Parameter value is not valid"),
    131016: (500, "Service unavailable"),
    131020: (400, "Group has only one member"),
    131021: (400, "Recipient cannot be sender"),
    131026: (400, "Message undeliverable"),
    131030: (400, "Recipient phone number not in allowed list"),
    131031: (403, "Business Account locked"),
    131037: (400, "Display name approval is required"),
    131041: (400, "Group unknown"),
    131042: (400, "Business eligibility payment issue"),
    131044: (400, "Business eligibility payment issue"),
    131045: (500, "Incorrect certificate"),
    131047: (400, "Re-engagement message"),
    131048: (400, "Spam rate limit hit"),
    131049: (400, "This message was not delivered to maintain healthy ecosystem engagement"),
    131050: (400, "User has stopped marketing messages"),
    131051: (400, "Unsupported message type"),
    131052: (400, "Media download error"),
    131053: (400, "Media upload error"),
    131055: (400, "Method not allowed"),
    131056: (400, "(Business Account, Consumer Account) pair rate limit hit"),
    131057: (500, "Account in maintenance mode"),
    131059: (400, "Invalid cursor"),
    131062: (400, "Business-scoped user ID is not allowed here"),
    131063: (400, "Marketing templates are not available on Cloud API for this number"),
    131064: (400, "Limit reached because of wrong template classification"),
    132000: (400, "Number of parameters does not match the expected number of params"),
    132001: (404, "Template name does not exist in the translation"),
    132005: (400, "Translated text too long"),
    132007: (400, "Template format character policy violated"),
    132008: (400, "Parameter value is not valid"),
    132012: (400, "Parameter format does not match format in the created template"),
    132015: (400, "Template is paused"),
    132016: (400, "Template is disabled"),
    132018: (400, "Template parameters are not valid"),
    132068: (400, "Flow is blocked"),
    132069: (400, "Flow is throttled"),
    133000: (500, "Incomplete deregistration"),
    133004: (503, "Server temporarily unavailable"),
    133005: (400, "Two step verification PIN mismatch"),
    133006: (400, "Phone number re-verification needed"),
    133008: (400, "Too many two step verification PIN guesses"),
    133009: (400, "Two step verification PIN guessed too fast"),
    133010: (400, "Phone number not registered"),
    133015: (400, "Please wait a few minutes before attempting to register this phone number"),
    133016: (400, "Account register deregister rate limit exceeded"),
    134011: (400, "Payment terms not accepted"),
    134100: (400, "Only marketing templates are allowed"),
    134101: (400, "Template is syncing"),
    134102: (500, "Template is unavailable"),
    135000: (400, "Generic user error"),
    136024: (400, "Request code error"),
    136025: (400, "Verify code error"),
    137000: (400, "Recipient identity key hash mismatch"),
    2593107: (400, "Synchronization request limit exceeded"),
    2593108: (400, "Synchronization request made outside of the allowed time window"),
}

DETAILS: dict[int, str] = {
    130429: "Message failed to send because there were too many messages sent from this phone number in a "
    "short period of time.",
    131026: "Message Undeliverable.",
    131030: "Recipient phone number not in allowed list: Add recipient phone number to recipient list and try "
    "again.",
    131047: "Message failed to send because more than 24 hours have passed since the customer last replied to "
    "this number.",
    131056: "Message failed to send because there were too many messages sent from this phone number to the "
    "same phone number in a short period of time.",
    133005: "The two-step verification PIN is wrong.",
    133010: "Account not registered",
    133016: "The number was registered or deregistered too many times. Try again in 72 hours.",
    136024: "A verification code was requested too often. Try again later.",
    136025: "The verification code is wrong.",
}

_SUBCODES = {130429: 2494055}


def trace_id() -> str:
    """A value for `fbtrace_id` and `x-fb-trace-id`."""
    return "A" + secrets.token_urlsafe(16)


class GraphError(Exception):
    """A refused call. `details` becomes `error_data.details` (upstream fact 2.7)."""

    def __init__(
        self,
        code: int,
        details: str | None = None,
        *,
        message: str | None = None,
        status: int | None = None,
        subcode: int | None = None,
        error_type: str = "OAuthException",
        user_title: str | None = None,
        user_message: str | None = None,
    ) -> None:
        http, title = CATALOGUE.get(code, (400, "Error"))
        super().__init__(f"{code} {title}")
        self.code = code
        self.status = status or http
        self.message = message or f"(#{code}) {title}"
        self.details = details if details is not None else DETAILS.get(code)
        self.subcode = subcode or _SUBCODES.get(code)
        self.error_type = error_type
        self.user_title = user_title
        self.user_message = user_message

    def body(self, trace: str) -> dict[str, Any]:
        """The error body of upstream fact 2.7."""
        error: dict[str, Any] = {"message": self.message, "type": self.error_type, "code": self.code}
        if self.subcode:
            error["error_subcode"] = self.subcode
        if self.details is not None:
            error["error_data"] = {"messaging_product": "whatsapp", "details": self.details}
        if self.user_title or self.user_message:
            error["is_transient"] = False
            error["error_user_title"] = self.user_title
            error["error_user_msg"] = self.user_message
        error["fbtrace_id"] = trace
        return {"error": error}


def no_such_object(node: str, method: str) -> GraphError:
    """The Graph API's error for ids that do not exist or that the token has no access to (100 / 33)."""
    return GraphError(
        100,
        message=f"Unsupported {method.lower()} request. Object with ID '{node}' does not exist, cannot be loaded "
        "due to missing permissions, or does not support this operation. Please read the Graph API documentation at "
        "https://developers.facebook.com/docs/graph-api",
        subcode=33,
        error_type="GraphMethodException",
    )


def invalid_parameter(what: str, *, subcode: int | None = None, title: str | None = None) -> GraphError:
    """Error 100 with the reason in the message, in the form of Meta's management calls."""
    return GraphError(
        100,
        message=f"(#100) {what}",
        subcode=subcode,
        user_title=title,
        user_message=what if title else None,
    )


def status_error(code: int, details: str | None = None) -> dict[str, Any]:
    """The `errors[]` entry of a failed status or of an inbound message (upstream fact 2.7, webhook form)."""
    title = CATALOGUE.get(code, (400, "Error"))[1]
    return {
        "code": code,
        "title": title,
        "message": title,
        "error_data": {"details": details or DETAILS.get(code, title)},
        "href": HREF,
    }
