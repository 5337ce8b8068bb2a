"""Suggestions for a mistyped word: helpful, never misleading."""

import pytest

from gateway.api.validation import suggestion

TYPES = ["*", "message.inbound", "message.status", "message.echo", "template.status", "number.name"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("message.statuses", "message.status"),
        ("MESSAGE.INBOUND", "message.inbound"),
        ("mesage.inbound", "message.inbound"),
        ("message.received", None),
        ("message.*", None),
        ("delivered", None),
    ],
)
def test_a_shared_beginning_alone_is_no_likeness(word: str, found: str | None) -> None:
    assert suggestion(word, TYPES) == found
