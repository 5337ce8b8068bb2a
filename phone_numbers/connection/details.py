"""Connection details explained to the customer: the reason in a sentence, and what repairs it. Pure."""

from typing import NamedTuple


class Explained(NamedTuple):
    """A connection detail in words; `repair` names the form or link that the page shows."""

    reason: str
    repair: str | None


_DETAILS = {
    None: Explained("It can send and receive.", None),
    "no_verified_endpoint": Explained(
        "No webhook endpoint is verified and active, so its events would reach nobody.", "endpoint"
    ),
    "not_registered": Explained("It is not registered for sending yet.", "register"),
    "deregistered": Explained("It was deregistered. Register it again to send.", "register"),
    "not_subscribed": Explained("Its account does not send events to the gateway.", "subscribe"),
    "token_invalid": Explained("The platform refuses the token of its account.", "connect"),
    "account_removed": Explained("The access to its account was withdrawn on the platform.", "connect"),
    "account_restricted": Explained(
        "The platform restricted its account. The platform's Business Support can lift this.", None
    ),
}


def explained(detail: str | None) -> Explained:
    """A connection detail in words."""
    return _DETAILS.get(detail, Explained(f"The gateway reports {detail}.", None))
