"""Why a message was not delivered, in one sentence, with what repairs it. Pure."""

from typing import NamedTuple

from messaging.console.upstream_codes import of_code
from messaging.message_log.detail import Detail

THROUGHPUT_REACHED = 130429
"""A single message is told to use a batch; one of a batch was certainly not sent."""


class Explanation(NamedTuple):
    """A sentence about a message, and the page that repairs it: a route's name with the button's text, or None."""

    text: str
    level: str
    button: str | None = None
    url_name: str | None = None


def explained(found: Detail) -> Explanation:
    """What became of a message."""
    row = found.row
    if row.direction == "inbound":
        return Explanation("A customer sent it.", "ok")
    if row.status in {"read", "delivered"}:
        return Explanation(f"It was {row.status}.", "ok")
    if row.status == "failed" or found.error is not None:
        code = found.error.code if found.error else row.error_code
        if row.batch_id is not None and code == THROUGHPUT_REACHED:
            text = "The number sent faster than its throughput. Its batch can send it again: see below."
            return Explanation(f"{text} (code {code})", "bad")
        known = of_code(str(code))
        if known is not None:
            text = f"{known.cause} {known.fix} (code {code})"
            return Explanation(text, "bad", known.button, known.url_name)
        said = (found.error.details or found.error.message or found.error.title) if found.error else None
        return Explanation(
            f"It was not delivered: {said or 'the platform gave no reason'} (code {code})", "bad"
        )
    if row.status == "sent":
        return Explanation(
            "The platform sent it. The phone has not confirmed it yet: it may be off or without a network.",
            "warn",
        )
    return Explanation("The platform accepted it. No status has come yet.", "warn")
