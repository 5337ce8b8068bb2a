"""Ids: ordered by time, decoded to the original id, and rejected if malformed."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import clock, ids
from gateway.clock import IST

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


def test_an_id_is_of_the_month_and_moment_in_which_it_was_made() -> None:
    for moment, month in (
        (datetime(1969, 12, 31, 23, tzinfo=UTC), date(1970, 1, 1)),
        (datetime(2026, 11, 30, 23, 59, 59, 999_000, tzinfo=UTC), date(2026, 11, 1)),
        (datetime(2026, 12, 1, 0, 0, tzinfo=UTC), date(2026, 12, 1)),
        (datetime(2027, 1, 1, 4, 0, tzinfo=IST), date(2026, 12, 1)),
    ):
        assert ids.month_of(ids.first_at(moment)) == month
    assert ids.first_at(datetime(1969, 12, 31, tzinfo=UTC)) == UUID(int=0)
    for millisecond in (0, 1_793_500_000_120):
        made = [ids.uuid7_at(millisecond) for _ in range(2)]
        assert {ids.milliseconds(each) for each in made} == {millisecond}
        assert made[0] != made[1]


def test_an_id_is_valid_until_the_year_9000() -> None:
    end = ids.first_at(datetime(9000, 1, 1, tzinfo=UTC)).int
    for number, is_valid in ((0, True), (end - 1, True), (end, False), (end + 1, False)):
        assert (ids.decode("evt_", ids.encode("evt_", UUID(int=number))) is not None) == is_valid


def test_a_typed_id_gets_its_letter_case_back() -> None:
    text = ids.encode(ids.EVENT, UUID(int=2**125 + 12345))
    for typed in (text, text.lower(), text.upper()):
        assert ids.typed(typed) == text


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1000, 1_793_500_000_120, 4_102_444_799_999])
def test_every_time_is_written_in_utc_with_milliseconds(milliseconds: int) -> None:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"
    assert clock.isoformat_of(milliseconds) == text
    assert clock.isoformat(moment) == clock.isoformat(moment.astimezone(IST)) == text
    assert clock.isoformat(moment + timedelta(microseconds=999)) == text
    assert clock.microseconds(moment) == milliseconds * 1000
