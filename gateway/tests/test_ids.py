"""Ids: ordered by time, decoded to the original id, and rejected if malformed."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import ids

MADE = st.integers(0, ids.first_at(datetime(9000, 1, 1, tzinfo=UTC)).int - 1).map(
    lambda number: UUID(int=number)
)


@given(MADE)
def test_the_public_form_reads_back(value: UUID) -> None:
    text = ids.encode(ids.EVENT, value)
    assert len(text) == len("evt_") + 26
    assert ids.decode(ids.EVENT, text) == value
    assert ids.decode(ids.DELIVERY, text) is None


@given(st.uuids(), st.uuids())
def test_the_public_form_sorts_like_the_id(one: UUID, other: UUID) -> None:
    assert (ids.encode("", one) < ids.encode("", other)) == (one < other)


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    value = ids.decode(ids.EVENT, text)
    assert value is None or ids.encode(ids.EVENT, value) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt_",
        "evt_" + "8" + "0" * 25,
        "evt_" + "0" * 25 + "I",
        "evt_" + "0" * 26 + "\n",
        "evt_" + "٠" * 26,
        # An id of the year 10889, which Python cannot represent.
        "evt_7" + "Z" * 25,
    ],
)
def test_what_is_no_id_is_none(text: str) -> None:
    assert ids.decode(ids.EVENT, text) is None


def test_an_id_carries_its_millisecond() -> None:
    moment = datetime(2026, 11, 1, 7, 6, 41, 120_000, tzinfo=UTC)
    assert ids.created_at(ids.first_at(moment)) == moment
    made = [ids.uuid7() for _ in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == 1000
