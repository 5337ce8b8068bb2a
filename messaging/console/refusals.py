"""What a page says when the upstream refused a call or did not answer."""

from phone_numbers.graph_calls import Refused

UNREACHABLE = "The platform did not answer. Try again in a minute."


def words_of(refusal: Refused) -> str:
    """What the platform said against it, in its words for people."""
    error = refusal.answer.json().get("error")
    words = error if isinstance(error, dict) else {}
    return str(words.get("error_user_msg") or words.get("message") or "The platform refused it.")
