"""TLS of outbound calls: which certificates are accepted."""

import ssl
from pathlib import Path

from gateway.http1 import new_tls_context
from gateway.outbound.client import Outbound
from gateway.outbound.tests.receivers import Connection, KnownNames, Serve, answers_ok
from tests.certificates import self_signed


async def test_a_certificate_that_nobody_vouches_for(
    serve: Serve, client: Outbound, server_tls: ssl.SSLContext
) -> None:
    receiver = await serve(answers_ok, tls=server_tls)

    answer = await client.post(receiver.url(scheme="https"), b"secret", {})

    assert (answer.status, answer.error) == (None, "tls_error")
    assert receiver.requests == []


async def test_a_trusted_certificate(serve: Serve, certificate: Path, server_tls: ssl.SSLContext) -> None:
    receiver = await serve(answers_ok, tls=server_tls)
    trusting = ssl.create_default_context(cafile=str(certificate))
    names = KnownNames(**{"receiver.test": [["127.0.0.1"]], "other.test": [["127.0.0.1"]]})

    async with Outbound(allow_private=True, resolve=names, tls=trusting) as client:
        by_name = await client.post(receiver.url(scheme="https", host="receiver.test"), b"{}", {})
        again = await client.post(receiver.url(scheme="https", host="receiver.test"), b"{}", {})
        wrong_name = await client.post(receiver.url(scheme="https", host="other.test"), b"{}", {})

    assert (by_name.ok, again.ok, wrong_name.error) == (True, True, "tls_error")
    assert len(receiver.requests) == 2


async def test_https_where_plain_http_is_spoken(serve: Serve, client: Outbound) -> None:
    async def plain(connection: Connection) -> None:
        await connection.reader.read(100)
        await connection.answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    receiver = await serve(plain)

    assert (await client.post(receiver.url(scheme="https"), b"", {})).error == "tls_error"


async def test_the_common_name_of_a_certificate_is_no_host_name(serve: Serve, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, alternative_names=False)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    receiver = await serve(answers_ok, tls=server)
    trusting = new_tls_context()
    trusting.load_verify_locations(certificate)
    names = KnownNames(**{"receiver.test": [["127.0.0.1"]]})

    async with Outbound(allow_private=True, resolve=names, tls=trusting) as client:
        answer = await client.post(receiver.url(scheme="https", host="receiver.test"), b"{}", {})

    assert answer.error == "tls_error"
    assert receiver.requests == []
