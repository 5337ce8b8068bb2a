"""The soak's verdict reports each broken promise, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.__main__ import grown
from tests.soak.ledger import NO_ANSWER, Ledger, open_ledger
from tests.soak.verdict import Item, broken

EVENTS, SENDS = 40, 8
ACCEPTED = Item("accepted", 200, is_unknown=False)
SINGLE, ITEM = 1, 5


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """The ledger of a run without a broken promise."""
    ledger = open_ledger(tmp_path / "ledger", events=EVENTS, sends=SENDS)
    for event in range(EVENTS):
        ledger.accepted[event] = ledger.arrived[event] = 1
    for send in range(SENDS):
        ledger.taken[send] = ledger.outbound[send] = 1
    for single in range(ledger.singles):
        ledger.statuses[single] = 200
    return ledger


@pytest.fixture
def items(ledger: Ledger) -> dict[int, Item]:
    """The items of that run's batches."""
    return dict.fromkeys(range(ledger.singles, SENDS), ACCEPTED)


def test_nothing_is_found_where_all_went_well_or_said_so(ledger: Ledger, items: dict[int, Item]) -> None:
    for single, status, taken in ((0, 502, 1), (1, 502, 0), (2, 429, 0), (3, NO_ANSWER, 1)):
        ledger.statuses[single], ledger.taken[single], ledger.outbound[single] = status, taken, 0
    for place, (item, taken) in enumerate(
        (
            (Item("failed", None, is_unknown=True), 1),
            (Item("failed", 500, is_unknown=False), 1),
            (Item("failed", 429, is_unknown=False), 0),
        )
    ):
        items[ledger.singles + place], ledger.taken[ledger.singles + place] = item, taken
    assert broken(ledger, items) == {}


@pytest.mark.parametrize(
    ("finding", "breaks"),
    [
        ("events accepted that never arrived", lambda ledger, _: ledger.arrived.__setitem__(7, 0)),
        ("events never accepted", lambda ledger, _: ledger.accepted.__setitem__(7, 0)),
        (
            "messages answered 200 whose event never arrived",
            lambda ledger, _: ledger.outbound.__setitem__(SINGLE, 0),
        ),
        ("items whose event never arrived", lambda ledger, _: ledger.outbound.__setitem__(ITEM, 0)),
        ("messages sent twice", lambda ledger, _: ledger.taken.__setitem__(SINGLE, 2)),
        ("messages sent twice", lambda ledger, _: ledger.taken.__setitem__(ITEM, 2)),
        ("messages answered 200 that were not sent", lambda ledger, _: ledger.taken.__setitem__(SINGLE, 0)),
        ("messages refused that were sent", lambda ledger, _: ledger.statuses.__setitem__(SINGLE, 503)),
        ("messages without any answer", lambda ledger, _: ledger.statuses.__setitem__(SINGLE, 0)),
        ("items accepted that were not sent", lambda ledger, _: ledger.taken.__setitem__(ITEM, 0)),
        ("items that are not finished", lambda _, items: items.update({ITEM: Item("pending", None, False)})),
        (
            "items refused as throttled that were sent",
            lambda _, items: items.update({ITEM: Item("failed", 429, False)}),
        ),
        ("items failed without a reason", lambda _, items: items.update({ITEM: Item("failed", None, False)})),
        ("messages of batches without an item", lambda _, items: items.pop(ITEM)),
        ("deliveries under a second event id", lambda ledger, _: setattr(ledger, "doubled", 1)),
        ("deliveries at another tenant's receiver", lambda ledger, _: setattr(ledger, "strays", 1)),
    ],
)
def test_a_broken_promise_is_found(
    ledger: Ledger,
    items: dict[int, Item],
    finding: str,
    breaks: Callable[[Ledger, dict[int, Item]], object],
) -> None:
    breaks(ledger, items)
    assert list(broken(ledger, items)) == [finding]


def test_memory_that_grows_is_found_and_a_process_that_begins_small_is_not() -> None:
    flat = [{"web": 60.0 if part < 20 else 100.0, "postgres": float(part)} for part in range(60)]
    assert grown(flat) == []
    growing = [{"web": 100.0 + part} for part in range(60)]
    assert grown(growing) == []
    assert grown([{"web": 100.0 + 3 * part} for part in range(60)]) == [
        "the memory of web grew from 217 to 277 MB"
    ]
