"""The wait that a receiver requests with `Retry-After`."""

import datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.outbound.client import Outbound
from gateway.outbound.connection import retry_after
from gateway.outbound.tests.receivers import Serve, says


def http_date(seconds: float) -> str:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "120"}, 120.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "9" * 400}, 30 * 86400.0),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 +99999999999999"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 60.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:00 GMT", "Date": "today"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:00 -0000", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 60.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 -0000"}, 60.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:27:59 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        (
            {"Retry-After": "Fri, 20 Nov 2015 07:28:01 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"},
            30 * 86400.0,
        ),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date_by_the_clock_of_this_machine() -> None:
    waiting = retry_after({"Retry-After": http_date(90)})

    assert waiting is not None
    assert 85 <= waiting <= 90


@given(value=st.text(), date=st.text())
def test_retry_after_of_any_text(value: str, date: str) -> None:
    waiting = retry_after({"Retry-After": value, "Date": date})

    assert waiting is None or 0 <= waiting <= 30 * 86400


async def test_retry_after_is_in_the_answer(serve: Serve, client: Outbound) -> None:
    receiver = await serve(says(b"HTTP/1.1 429 Slow\r\nretry-after: 33\r\nContent-Length: 0\r\n\r\n"))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.retry_after) == (429, "http_4xx", 33.0)


@pytest.mark.parametrize(
    ("status", "seconds"), [(200, None), (302, None), (399, None), (400, 33.0), (503, 33.0)]
)
async def test_only_an_error_asks_to_wait(
    serve: Serve, client: Outbound, status: int, seconds: float | None
) -> None:
    head = f"HTTP/1.1 {status} X\r\nRetry-After: 33\r\nContent-Length: 0\r\n\r\n"
    receiver = await serve(says(head.encode()))
    assert (await client.post(receiver.url(), b"{}", {})).retry_after == seconds


async def test_of_a_repeated_wait_the_first_counts(serve: Serve, client: Outbound) -> None:
    head = b"HTTP/1.1 503 X\r\nRetry-After: 33\r\nretry-after: 44\r\nContent-Length: 0\r\n\r\n"
    receiver = await serve(says(head))
    assert (await client.post(receiver.url(), b"{}", {})).retry_after == 33.0
