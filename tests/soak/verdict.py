"""Reconciliation of a soak. It compares accepted events and messages with those that arrived, and reported statuses
with accepted messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.soak.ledger import NO_ANSWER, Ledger

ACCEPTED = 200
NOT_SENT = {409, 429, 503}
"""Statuses that mean that the message was not sent."""
SHOWN = 10


@dataclass(frozen=True)
class Item:
    """An item of a batch, from its row."""

    status: str
    http_status: int | None
    is_unknown: bool
    """Whether the response reports an unknown outcome."""


def lost(ledger: Ledger, items: Mapping[int, Item]) -> dict[str, list[int]]:
    """Events, messages and items that have not arrived or finished yet, but still may."""
    return _found(
        {
            "events accepted that never arrived": [
                number
                for number, accepted in enumerate(ledger.accepted)
                if accepted and not ledger.arrived[number]
            ],
            "messages answered 200 whose event never arrived": [
                number for number in _singles(ledger, {ACCEPTED}) if not ledger.outbound[number]
            ],
            "items whose event never arrived": [number for number in items if not ledger.outbound[number]],
            "items that are not finished": [
                number for number, item in items.items() if item.status not in {"accepted", "failed"}
            ],
        }
    )


def broken(ledger: Ledger, items: Mapping[int, Item]) -> dict[str, list[int]]:
    """Every broken promise: the finding and the numbers of its events or messages."""
    taken: Sequence[int] = ledger.taken
    return lost(ledger, items) | _found(
        {
            "events never accepted": [number for number, ok in enumerate(ledger.accepted) if not ok],
            "messages sent twice": [number for number, times in enumerate(taken) if times > 1],
            "messages answered 200 that were not sent": [
                number for number in _singles(ledger, {ACCEPTED}) if not taken[number]
            ],
            "messages refused that were sent": [
                number for number in _singles(ledger, NOT_SENT) if taken[number]
            ],
            "messages without any answer": [
                number for number in range(ledger.singles) if not ledger.statuses[number]
            ],
            "items accepted that were not sent": [
                number for number, item in items.items() if item.status == "accepted" and not taken[number]
            ],
            "items refused as throttled that were sent": [
                number for number, item in items.items() if item.http_status == 429 and taken[number]
            ],
            "items failed without a reason": [
                number
                for number, item in items.items()
                if item.status == "failed" and item.http_status is None and not item.is_unknown
            ],
            "messages of batches without an item": [
                number for number in range(ledger.singles, ledger.sends) if number not in items
            ],
            "deliveries under a second event id": [0] * ledger.doubled,
            "deliveries at another tenant's receiver": [0] * ledger.strays,
        }
    )


def outcomes(ledger: Ledger, items: Mapping[int, Item]) -> dict[str, int]:
    """The results of the messages, for the report."""
    answered = list(ledger.statuses[: ledger.singles])
    found = {
        "single sends answered 200": answered.count(ACCEPTED),
        "answered 500 or 502": answered.count(500) + answered.count(502),
        "answered 409, 429 or 503": sum(map(answered.count, NOT_SENT)),
        "without a key and without an answer": answered.count(NO_ANSWER),
        "items accepted": sum(item.status == "accepted" for item in items.values()),
        "items whose outcome is unknown": sum(item.is_unknown for item in items.values()),
    }
    return found | {
        "items refused": len(items) - found["items accepted"] - found["items whose outcome is unknown"]
    }


def _singles(ledger: Ledger, statuses: set[int]) -> list[int]:
    return [number for number in range(ledger.singles) if ledger.statuses[number] in statuses]


def _found(findings: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: numbers for name, numbers in findings.items() if numbers}
