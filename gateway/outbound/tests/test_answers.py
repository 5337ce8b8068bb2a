"""Unusual responses of receivers, and the result of an outbound call for each."""

import asyncio
import errno
import gzip
import itertools
import socket
import ssl
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http1 import AnswerTooLargeError, BrokenOffError
from gateway.outbound.addresses import InvalidUrlError, UnknownNameError
from gateway.outbound.client import Answer, Outbound
from gateway.outbound.connection import Attempt, ProxyAwayError, StaleError
from gateway.outbound.tests.receivers import (
    OK,
    Behaviour,
    Connection,
    Serve,
    answers_ok,
    says,
)

ERRORS = {
    "http_3xx", "http_4xx", "http_5xx", "timeout", "dns_error", "connection_error", "tls_error",
    "blocked_address", "response_too_large",
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *[(status, None) for status in (200, 201, 202, 204, 299)],
        *[(status, "http_3xx") for status in (300, 301, 302, 304, 307, 308)],
        *[(status, "http_4xx") for status in (400, 401, 404, 410, 429, 499)],
        *[(status, "http_5xx") for status in (500, 502, 503, 599, 999)],
        (101, "connection_error"),
    ],
)
async def test_only_2xx_is_success(serve: Serve, client: Outbound, status: int, error: str | None) -> None:
    receiver = await serve(says(b"HTTP/1.1 %d Something\r\nContent-Length: 0\r\n\r\n" % status))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.ok) == (status, error, error is None)


async def test_interim_answers_are_passed_over(serve: Serve, client: Outbound) -> None:
    receiver = await serve(says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK))

    assert (await client.post(receiver.url(), b"{}", {})).status == 200


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(serve: Serve, client: Outbound, status: int) -> None:
    target = await serve(answers_ok)
    location = target.url().encode()
    receiver = await serve(
        says(b"HTTP/1.1 %d R\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, location))
    )

    assert (await client.post(receiver.url(), b"{}", {})).error == "http_3xx"
    assert (await client.request("GET", receiver.url(), None, {})).error == "http_3xx"

    assert (receiver.connections, target.connections) == (2, 0)


async def test_a_long_answer_is_read_to_the_limit_and_cut(serve: Serve, client: Outbound) -> None:
    sent = 0

    async def talks(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            await connection.answer(b"x" * 100_000)
            sent += 100_000

    receiver = await serve(talks)

    answer = await client.post(receiver.url(), b"{}", {})

    assert answer.ok
    assert answer.body == b"x" * 16 * 1024
    async with asyncio.timeout(5):
        await receiver.gone.wait()
    assert sent < 50_000_000
    assert (await client.post(receiver.url(), b"{}", {}, read_limit=10)).body == b"x" * 10
    assert receiver.connections == 2


async def test_an_answer_as_long_as_the_limit_keeps_the_connection(serve: Serve, client: Outbound) -> None:
    receiver = await serve(answers_ok)

    for _ in range(2):
        assert (await client.post(receiver.url(), b"{}", {}, read_limit=2)).body == b"ok"

    assert receiver.connections == 1


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Name: \x01\r\nContent-Length: 5\r\n\r\nhello",
    ],
    ids=["lines that end in a line feed", "a space behind a chunk's size", "a control character"],
)
async def test_sloppy_answers_are_understood(serve: Serve, client: Outbound, data: bytes) -> None:
    receiver = await serve(says(data))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body) == (200, None, b"hello")


async def test_an_answer_of_unknown_length_lasts_until_the_connection_ends(
    serve: Serve, client: Outbound
) -> None:
    receiver = await serve(says(b"HTTP/1.1 200 OK\r\n\r\nas long as it takes"))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body) == (200, None, b"as long as it takes")


async def test_an_answer_before_the_body_was_read_is_the_answer(serve: Serve, client: Outbound) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.answer(b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    receiver = await serve(refuses)

    for _ in range(2):
        answer = await client.post(receiver.url(), bytes(32 * 1024 * 1024), {}, total_timeout=5)
        assert (answer.status, answer.error) == (413, "http_4xx")
        assert answer.ms < 4000

    assert receiver.connections == 2


async def test_a_compressed_answer_is_not_unpacked(serve: Serve, client: Outbound) -> None:
    bomb = gzip.compress(bytes(30_000_000))
    receiver = await serve(
        says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)
    )

    answer = await client.post(receiver.url(), b"{}", {})

    assert answer.ok
    assert answer.body == bomb[: 16 * 1024]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Name: a\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 " + b"O" * 100_000 + b"\r\n\r\n",
    ],
    ids=["long field", "many fields", "long status line"],
)
async def test_headers_beyond_the_bounds(serve: Serve, client: Outbound, head: bytes) -> None:
    receiver = await serve(says(head))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error) == (None, "response_too_large")


async def test_headers_without_end(serve: Serve, client: Outbound) -> None:
    async def talks(connection: Connection) -> None:
        await connection.request()
        await connection.answer(b"HTTP/1.1 200 OK\r\n")
        while True:
            await connection.answer(b"X-Name: value\r\n" * 10)

    receiver = await serve(talks)

    assert (await client.post(receiver.url(), b"{}", {})).error == "response_too_large"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 200),
        (b"SSH-2.0-OpenSSH_9.6\r\n", None),
    ],
)
async def test_an_answer_that_breaks_off(
    serve: Serve, client: Outbound, data: bytes, status: int | None
) -> None:
    receiver = await serve(says(data))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error) == (status, "connection_error")
    assert receiver.connections == 1


async def test_a_refusal_that_breaks_off_is_still_a_refusal(serve: Serve, client: Outbound) -> None:
    receiver = await serve(says(b"HTTP/1.1 503 No\r\nContent-Length: 100\r\nRetry-After: 7\r\n\r\nbecause"))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body, answer.retry_after) == (
        503,
        "http_5xx",
        b"because",
        7.0,
    )


async def test_a_reset_connection(serve: Serve, client: Outbound) -> None:
    async def resets(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    receiver = await serve(resets)

    assert (await client.post(receiver.url(), b"{}", {})).error == "connection_error"
    assert receiver.connections == 1


async def test_nobody_listens(client: Outbound) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        answer = await client.post(f"http://127.0.0.1:{unused.getsockname()[1]}/", b"{}", {})

    assert (answer.status, answer.error, answer.body) == (None, "connection_error", b"")


TOKENS = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 ", b"HTTP/9.9", b"204", b"-1", b"\r\n", b"\n", b"\x00", b": ",
     b"\xff\xfe", b"Content-Length: 5\r\n", b"Content-Length: -5\r\n",
     b"Content-Length: 99999999999999999999\r\n",
     b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"Content-Encoding: br\r\n",
     b"Set-Cookie: a=\x01; Domain=.; Expires=x\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
     b"Retry-After: Fri, 99 Foo 99999 99:99:99 +99999999\r\n", b"Connection: close\r\n", b"hello"]
)  # fmt: skip


@settings(max_examples=60)
@given(data=st.lists(st.one_of(TOKENS, st.binary(max_size=8)), max_size=10).map(b"".join))
def test_whatever_the_receiver_says_there_is_an_answer(data: bytes) -> None:
    async def ask() -> Answer:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
                await reader.readuntil(b"\r\n\r\n{}")
                writer.write(data)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with server, Outbound(allow_private=True) as client:
            port = server.sockets[0].getsockname()[1]
            return await client.post(f"http://127.0.0.1:{port}/", b"{}", {}, total_timeout=2)

    answer = asyncio.run(ask())

    assert answer.error in ERRORS | {None}
    assert len(answer.body) <= 16 * 1024


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def goes_on_without_end(beginning: bytes, repeated: bytes) -> Behaviour:
    """A behaviour: send a beginning, then the same bytes as long as the client reads."""

    async def behaviour(connection: Connection) -> None:
        await connection.request()
        await connection.answer(beginning)
        while True:
            await connection.answer(repeated)

    return behaviour


@pytest.mark.parametrize(
    ("beginning", "repeated"),
    [
        (CHUNKED + b"2\r\nok\r\n0\r\n", b"X-Name: value\r\n"),
        (CHUNKED + b"2\r\nok\r\n0\r\nX-Name: ", b"a" * 1000),
        (CHUNKED + b"2\r\nok\r\n0\r\n" + b"X-Name: value\r\n" * 5000, b"X-Name: value\r\n"),
    ],
    ids=["many fields", "one field", "many fields at once"],
)
async def test_an_answer_is_complete_at_its_last_chunk(
    serve: Serve, client: Outbound, beginning: bytes, repeated: bytes
) -> None:
    receiver = await serve(goes_on_without_end(beginning, repeated))

    answer = await client.post(receiver.url(), b"{}", {}, total_timeout=5)

    assert (answer.status, answer.error, answer.body) == (200, None, b"ok")
    async with asyncio.timeout(5):
        await receiver.gone.wait()


@pytest.mark.parametrize(
    ("beginning", "repeated"),
    [
        (CHUNKED + b"2;name=", b"a" * 1000),
        (CHUNKED, b"1;name=" + b"a" * 1000 + b"\r\nx\r\n"),
        (b"HTTP/1.1 199 Odd\r\nContent-Length: 1000000000\r\n\r\n", b"a" * 1000),
        (b"HTTP/1.1 199 Odd\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nok\r\n"),
    ],
    ids=["an extension", "extensions", "a body of an interim answer", "chunks of an interim answer"],
)
async def test_bytes_that_are_no_body_are_bounded(
    serve: Serve, client: Outbound, beginning: bytes, repeated: bytes
) -> None:
    receiver = await serve(goes_on_without_end(beginning, repeated))

    answer = await client.post(receiver.url(), b"{}", {}, total_timeout=5)

    assert answer.error == "response_too_large"
    async with asyncio.timeout(5):
        await receiver.gone.wait()


async def test_small_chunks_are_no_other_bytes(serve: Serve, client: Outbound) -> None:
    receiver = await serve(says(CHUNKED + b"1;a=b\r\nx\r\n" * 16_000 + b"0\r\n\r\n"))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.error, answer.body) == (None, b"x" * 16_000)


@pytest.mark.parametrize("pieces", [1, 4])
async def test_trailers_that_end_keep_the_connection(serve: Serve, client: Outbound, pieces: int) -> None:
    async def behaviour(connection: Connection) -> None:
        while await connection.request():
            data = CHUNKED + b"2\r\nok\r\n0\r\n" + b"\r\n"
            cuts = [len(CHUNKED), -5, -2] if pieces > 1 else []
            for start, end in itertools.pairwise([0, *cuts, len(data)]):
                await connection.answer(data[start:end])
                await asyncio.sleep(0)

    receiver = await serve(behaviour)

    for _ in range(2):
        assert (await client.post(receiver.url(), b"{}", {})).body == b"ok"

    assert receiver.connections == 1


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 199 Odd\r\nContent-Length: 5\r\n\r\nwrong",
        b"HTTP/1.1 199 Odd\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwrong\r\n0\r\n\r\n",
    ],
    ids=["length", "chunks"],
)
@pytest.mark.parametrize("final", [OK, b"HTTP/1.1 200 OK\r\n\r\nok"], ids=["framed", "until the end"])
async def test_the_body_of_an_interim_answer_is_dropped(
    serve: Serve, client: Outbound, interim: bytes, final: bytes
) -> None:
    receiver = await serve(says(interim + final))

    answer = await client.post(receiver.url(), b"{}", {})

    assert (answer.status, answer.error, answer.body) == (200, None, b"ok")


CALLED, BLOCKED = {"opened": True}, {"blocked": True}


@pytest.mark.parametrize(
    ("state", "failure", "error"),
    [
        ({}, None, None),
        ({"status": 204}, None, None),
        ({"status": 200}, TimeoutError(), "timeout"),
        ({"status": 200}, BrokenOffError(), "connection_error"),
        ({"status": 101}, None, "connection_error"),
        ({"status": 199}, None, "connection_error"),
        ({"status": 300}, TimeoutError(), "http_3xx"),
        ({"status": 499}, BrokenOffError(), "http_4xx"),
        ({"status": 500}, None, "http_5xx"),
        ({"status": 999}, None, "http_5xx"),
        (CALLED, TimeoutError(), "timeout"),
        (CALLED, OSError(errno.ETIMEDOUT, "no answer"), "timeout"),
        (CALLED, OSError(errno.ECONNREFUSED, "refused"), "connection_error"),
        (CALLED, ssl.SSLError(), "tls_error"),
        (CALLED, AnswerTooLargeError(), "response_too_large"),
        (CALLED, StaleError(), "connection_error"),
        ({}, UnknownNameError(), "dns_error"),
        ({}, InvalidUrlError(), "blocked_address"),
        ({}, ProxyAwayError(), "egress_proxy_away"),
        (BLOCKED, OSError(errno.EACCES, "not public"), "blocked_address"),
        (BLOCKED, TimeoutError(), "timeout"),
        ({**BLOCKED, **CALLED}, OSError(errno.ECONNREFUSED, "refused"), "connection_error"),
    ],
)
def test_each_failure_has_its_word(
    state: dict[str, Any], failure: Exception | None, error: str | None
) -> None:
    fields = [(b"A", b"b")]
    answer = Attempt(**state, fields=fields, retry_after=3.0).answer(failure)
    assert (answer.error, answer.ok, answer.status) == (error, error is None, state.get("status"))
    assert answer.fields == (fields if error else ())
    assert answer.concerns_receiver is (error != "egress_proxy_away")


@pytest.mark.parametrize(("count", "status"), [(128, 200), (129, None)])
async def test_an_answer_has_at_most_128_header_fields(
    serve: Serve, client: Outbound, count: int, status: int | None
) -> None:
    fields = b"Content-Length: 0\r\n" + b"X: a\r\n" * (count - 1)
    receiver = await serve(says(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n"))
    assert (await client.post(receiver.url(), b"{}", {})).status == status
