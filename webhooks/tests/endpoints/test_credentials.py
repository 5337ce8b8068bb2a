"""Authentication of requests to an endpoint: client certificates, CAs, OAuth2 tokens, a second signature."""

import asyncio
import ssl
import time
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import pytest
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from django.db import connection

from gateway.outbound.client import Answer, Outbound, once
from tenants.models import AuditEntry, Tenant
from tests.certificates import self_signed
from tests.fixtures import Api, assert_error
from tests.receiver import Received, Receiver, running
from webhooks.delivery import dispatcher
from webhooks.models import Delivery, Endpoint
from webhooks.requests import credentials
from webhooks.requests.credentials import Credentials, EndpointCaller, OAuth2, Tls, readable, unpacked
from webhooks.requests.signed_request import new_secret
from webhooks.tests.delivering import publish_one
from webhooks.tests.endpoints.test_lifecycle import verifies

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "s3cret of / the+shop"


def client(receiver: Receiver, **more: str) -> dict[str, str]:
    return {"token_url": f"{receiver.url}/token", "client_id": "gate:way", "client_secret": SECRET, **more}


def make(api: Api, url: str, **given: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", {"url": url, **given})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


class Tokens:
    """An authorisation server beside the receiver's endpoint. Each of its tokens is different."""

    def __init__(self, receiver: Receiver) -> None:
        self.asked: list[Received] = []
        self.status, self.answer = 200, {"token_type": "Bearer", "expires_in": 60}
        self.hook_status = 200
        receiver.answer = self.answer_to

    def answer_to(self, request: Received) -> web.Response:
        if not request.path.endswith("/token"):
            return web.Response(status=self.hook_status)
        self.asked.append(request)
        return web.json_response({"access_token": f"t{len(self.asked)}", **self.answer}, status=self.status)


def bearers(receiver: Receiver) -> list[str | None]:
    got = [*receiver.pings, *receiver.received]
    return [each.headers.get("Authorization") for each in got if not each.path.endswith("/token")]


def test_every_request_carries_a_token_that_is_kept_until_it_is_refused(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    tokens = Tokens(receiver)
    own = {"authorization": "Basic eDp5"}
    endpoint = make(api, receiver.url, oauth2=client(receiver, scope="hooks read"), headers=own)
    (asked,) = tokens.asked
    user, _, password = (
        b64decode(asked.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
    )
    assert (user, password) == ("gate%3Away", "s3cret+of+%2F+the%2Bshop")
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["hooks read"]}
    assert bearers(receiver) == ["Bearer t1"]

    for key in ("k1", "k2", "k3"):
        publish_one(tenant, key)
    dispatcher.run()
    api.post(f"/v1/webhooks/{endpoint['id']}/test", {"event_type": "message.inbound"})
    api.post(f"/v1/webhook-deliveries/{Delivery.objects.all()[0].public_id}/replay")
    assert bearers(receiver)[1:] == ["Bearer t2"] * 3 + ["Bearer t3", "Bearer t4"]

    stored = readable(Endpoint.objects.get())

    async def kept_until_401(outbound: Outbound) -> Answer:
        caller = EndpointCaller(outbound)
        for tokens.hook_status in (200, 401, 200):
            answer = await caller.call(UUID(endpoint["id"]), stored, receiver.url, b"{}", {})
        return answer

    assert once(kept_until_401, allow_private=True).ok
    assert bearers(receiver)[-3:] == ["Bearer t5", "Bearer t5", "Bearer t6"]


@pytest.mark.parametrize(
    ("lasts", "kept"),
    [({}, 270), ({"expires_in": 60}, 30), ({"expires_in": 20}, -10), ({"expires_in": 9_999}, 3_570)],
)
def test_a_token_is_replaced_before_it_expires_and_each_hour(
    receiver: Receiver, lasts: dict[str, object], kept: int
) -> None:
    Tokens(receiver).answer = lasts
    stored = Credentials(oauth2=OAuth2(**client(receiver)))

    left: list[float] = []

    async def until_replaced(outbound: Outbound) -> Answer:
        caller = EndpointCaller(outbound)
        answer = await caller.call(UUID(int=0), stored, receiver.url, b"{}", {})
        left.extend(token.until - time.monotonic() for token in caller._tokens.values())
        return answer

    assert once(until_replaced, allow_private=True).ok
    assert [kept - 5 < seconds <= kept for seconds in left] == [True]


def test_the_time_of_the_token_counts_towards_the_time_out(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(receiver)

    async def hang() -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.answer = lambda got: tokens.answer_to(got) if got.path.endswith("/token") else hang()
    # The token takes 25 seconds of this clock.
    clock = SimpleNamespace(monotonic=lambda: 25.0 * len(tokens.asked))
    monkeypatch.setattr(credentials, "time", clock)
    stored = Credentials(oauth2=OAuth2(**client(receiver)))

    async def call(outbound: Outbound) -> Answer:
        async with asyncio.timeout(10):
            return await EndpointCaller(outbound).call(
                UUID(int=0), stored, receiver.url, b"{}", {}, total_timeout=25.2
            )

    assert once(call, allow_private=True).error == "timeout"
    assert len(receiver.received) == 2, "the token was issued in time"


def test_without_a_token_the_attempt_fails_and_nothing_is_sent(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    tokens = Tokens(receiver)
    make(api, receiver.url, oauth2=client(receiver))
    answers: list[tuple[int, dict[str, Any]]] = [
        (400, {"error": "invalid_client"}),
        (200, {"access_token": None}),
        (200, {"access_token": "a\r\nX-B: c"}),
        (200, {"access_token": "x" * 9000}),
        (200, {"expires_in": "soon"}),
    ]
    for place, (tokens.status, tokens.answer) in enumerate(answers):
        event_id = publish_one(tenant, f"k{place}")
        dispatcher.run()
        delivery = Delivery.objects.get(event_id=event_id)
        found = (delivery.status, delivery.last_error, delivery.attempts)
        assert found == ("failed", "token_error", 1), tokens.answer
        assert bearers(receiver) == ["Bearer t1"]


def test_a_token_is_asked_for_at_public_addresses_alone(api: Api, receiver: Receiver, settings: Any) -> None:
    Tokens(receiver)
    settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
    asked = {"url": "https://shop.example/hook", "oauth2": client(receiver)}
    details = assert_error(api.post("/v1/webhooks", asked), 422, "webhook_verify_failed")["details"]
    assert details["error"] == "token_error"
    assert receiver.received == []


# --- TLS
def pem(directory: Path) -> tuple[str, str]:
    """A self-signed certificate and its key."""
    directory.mkdir()
    key, marker, certificate = self_signed(directory).read_text().partition("-----BEGIN CERTIFICATE-----")
    return marker + certificate, key


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    directory = tmp_path_factory.mktemp("authorities")
    return {name: pem(directory / name) for name in ("server", "client", "other")}


def asking(directory: Path, authorities: dict[str, tuple[str, str]]) -> ssl.SSLContext:
    """A server that requires a client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (directory / "chain.pem").write_text("".join(authorities["server"]))
    context.load_cert_chain(directory / "chain.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authorities["client"][0])
    return context


def test_client_certificates_and_own_cas(
    api: Api, tenant: Tenant, tmp_path: Path, authorities: dict[str, tuple[str, str]]
) -> None:
    ca, (certificate, key) = authorities["server"][0], authorities["client"]
    other, other_key = authorities["other"]
    with running(asking(tmp_path, authorities)) as receiver:
        tls = {"client_certificate": certificate, "client_key": key, "ca": ca}
        endpoint = make(api, receiver.url, tls=tls)
        assert endpoint["tls"] == {
            "client_certificate": certificate.strip(),
            "client_key": "***",
            "ca": ca.strip(),
        }
        wrong: list[Any] = [
            None,
            {"ca": ca},
            {"client_certificate": certificate, "client_key": key},
            {**tls, "ca": other},
            {**tls, "client_certificate": other, "client_key": other_key},
        ]
        for each in wrong:
            refused = api.post("/v1/webhooks", {"url": receiver.url, "tls": each})
            details = assert_error(refused, 422, "webhook_verify_failed")["details"]
            assert details["error"] in {"tls_error", "connection_error"}
            path = f"/v1/webhooks/{endpoint['id']}"
            assert_error(api.patch(path, {"tls": each}), 422, "webhook_verify_failed")
        assert api.get(path).json()["tls"] == endpoint["tls"]
        assert len(receiver.pings) == 1

        # Another endpoint has the same server but no client certificate. Its requests must not use this connection.
        stored = readable(Endpoint.objects.get(id=endpoint["id"]))
        assert stored.tls is not None
        stranger = replace(stored, tls=Tls(None, None, stored.tls.ca))

        async def one_after_another(outbound: Outbound) -> Answer:
            caller = EndpointCaller(outbound)
            for each in (stored, stored, stranger):
                answer = await caller.call(UUID(endpoint["id"]), each, receiver.url, b"{}", {})
            return answer

        assert once(one_after_another, allow_private=True).error in {"tls_error", "connection_error"}
        assert len(receiver.received) == 2
        publish_one(tenant)
        dispatcher.run()
        assert [each.status for each in Delivery.objects.filter(endpoint_id=endpoint["id"])] == ["delivered"]


def test_a_stored_certificate_that_cannot_be_used_any_longer_is_a_tls_error(receiver: Receiver) -> None:
    stored = Credentials(tls=Tls(ca="no pem"))

    async def call(outbound: Outbound) -> Answer:
        return await EndpointCaller(outbound).call(UUID(int=0), stored, receiver.url, b"{}", {})

    assert once(call, allow_private=True).error == "tls_error"
    assert receiver.received == []


# --- What is stored and shown
def test_secrets_are_encrypted_and_the_mask_keeps_them(
    api: Api, receiver: Receiver, authorities: dict[str, tuple[str, str]]
) -> None:
    Tokens(receiver)
    certificate, key = authorities["client"]
    tls = {"client_certificate": certificate, "client_key": key}
    endpoint = make(api, receiver.url, oauth2=client(receiver), tls=tls, asymmetric_signature=True)
    path = f"/v1/webhooks/{endpoint['id']}"
    read = api.get(path).json()
    assert read["oauth2"] == {**client(receiver), "client_secret": "***", "scope": None}
    answers = [api.get(path), api.get("/v1/webhooks"), api.patch(path, {"description": "x"})]
    stored = unpacked(Endpoint.objects.get().credentials)
    for text in (
        SECRET,
        key.splitlines()[1],
        (stored.seed or b"").hex(),
        b64encode(stored.seed or b"").decode(),
    ):
        assert not [answer for answer in answers if text.encode() in answer.content]
        assert text not in str(list(AuditEntry.objects.values()))
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM webhooks_endpoint")
            assert text not in str(cursor.fetchone())

    pings = len(receiver.pings)
    written_back = {name: read[name] for name in ("oauth2", "tls", "asymmetric_signature")}
    assert api.patch(path, written_back).json()["public_key"] == read["public_key"]
    assert len(receiver.pings) == pings, "nothing changed that a ping must pass"
    assert unpacked(Endpoint.objects.get().credentials).oauth2 == stored.oauth2
    assert (unpacked(Endpoint.objects.get().credentials).tls or Tls()).client_key == key.strip()
    assert api.patch(path, {"oauth2": {**read["oauth2"], "client_id": "new"}}).status_code == 200
    assert len(receiver.pings) == pings + 1
    changed = unpacked(Endpoint.objects.get().credentials).oauth2
    assert changed == OAuth2(client(receiver)["token_url"], "new", SECRET)
    assert api.patch(path, {"oauth2": None, "tls": None}).json()["oauth2"] is None
    assert api.patch(path, {"asymmetric_signature": False}).json()["public_key"] is None
    assert Endpoint.objects.get().credentials is None


def test_what_cannot_work_is_refused(
    api: Api, receiver: Receiver, authorities: dict[str, tuple[str, str]]
) -> None:
    encrypted = load_pem_private_key(authorities["client"][1].encode(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    texts = {
        "CERTIFICATE": authorities["client"][0],
        "OTHER KEY": authorities["other"][1],
        "ENCRYPTED KEY": encrypted.decode(),
    }
    endpoint = make(api, receiver.url)
    wrong: list[dict[str, Any]] = [
        {"tls": {}},
        {"tls": {"ca": "no pem"}},
        {"tls": {"ca": "x" * 10_001}},
        {"tls": {"client_certificate": "CERTIFICATE"}},
        {"tls": {"client_certificate": "CERTIFICATE", "client_key": "OTHER KEY"}},
        {"tls": {"client_certificate": "CERTIFICATE", "client_key": "ENCRYPTED KEY"}},
        {"tls": {"client_key": "***", "client_certificate": "CERTIFICATE"}},
        {"tls": {"client_key": "OTHER KEY", "ca": "CERTIFICATE"}},
        *(
            {
                "oauth2": {
                    "token_url": "https://login.example",
                    "client_id": "a",
                    "client_secret": "b",
                    **longer,
                }
            }
            for longer in ({"client_id": "x" * 256}, {"client_secret": "x" * 1025}, {"scope": "x" * 1025})
        ),
        {"oauth2": {"token_url": "https://login.example/token"}},
        {"oauth2": {"token_url": "ftp://login.example", "client_id": "a", "client_secret": "b"}},
        {"oauth2": {"token_url": "https://login.example", "client_id": "a", "client_secret": "***"}},
        {"asymmetric_signature": "perhaps"},
        {"retry_schedule": []},
        {"retry_schedule": [0]},
        {"retry_schedule": [86_401]},
        {"retry_schedule": [86_400] * 8},
        {"retry_schedule": [1] * 20},
    ]
    for given in wrong:
        ((member, value),) = given.items()
        if isinstance(value, dict):
            value = {name: texts.get(text, text) for name, text in value.items()}
        for method, path in (("POST", ""), ("PATCH", f"/{endpoint['id']}")):
            answer = api.request(method, f"/v1/webhooks{path}", {"url": receiver.url, member: value})
            fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
            assert {name.partition(".")[0] for name in fields} == {member}, given
    assert Endpoint.objects.get().credentials is None


def test_another_address_does_not_get_a_stored_secret(api: Api, receiver: Receiver) -> None:
    """A caller could otherwise read every secret at an address of their own, and leave no trace if the ping fails."""
    Tokens(receiver)
    endpoint = make(api, receiver.url, oauth2=client(receiver), headers={"X-Key": "k", "X-Shop": "17"})
    meta = make(api, receiver.url, format="meta", verify_token="t", status="pending")
    before, pings = list(Endpoint.objects.values()), len(receiver.pings)
    elsewhere = receiver.url.replace("127.0.0.1", "localhost")
    masked, given = {**client(receiver), "client_secret": "***"}, {"X-Key": "k"}
    cases: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
        (endpoint, {"oauth2": {**masked, "token_url": f"{elsewhere}/token"}}, {"oauth2"}),
        (endpoint, {"url": elsewhere}, {"headers", "oauth2"}),
        (endpoint, {"url": elsewhere, "headers": given}, {"oauth2"}),
        (endpoint, {"url": elsewhere, "headers": given, "oauth2": masked}, {"oauth2"}),
        (endpoint, {"url": elsewhere, "headers": {"X-Key": "***"}, "oauth2": None}, {"headers"}),
        (endpoint, {"url": receiver.url.replace("http:", "https:")}, {"headers", "oauth2"}),
        (meta, {"url": elsewhere}, {"verify_token"}),
    ]
    for row, change, fields in cases:
        answer = api.patch(f"/v1/webhooks/{row['id']}", change)
        assert set(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == fields, change
    assert (list(Endpoint.objects.values()), len(receiver.pings)) == (before, pings)

    path = f"/v1/webhooks/{endpoint['id']}"
    assert api.patch(path, {"url": f"{receiver.url}/new"}).status_code == 200
    assert receiver.pings[-1].headers["X-Key"] == "k"
    moved = {"url": elsewhere, "headers": given, "oauth2": client(receiver)}
    assert api.patch(path, moved).json()["url"] == elsewhere
    assert api.patch(path, {"url": receiver.url, "headers": None, "oauth2": None}).status_code == 200


# --- Signatures and retries
def is_signed(public_key: str, got: Received) -> bool:
    headers = {name.lower(): value for name, value in got.headers.items()}
    key = Ed25519PublicKey.from_public_bytes(b64decode(public_key.removeprefix("whpk_")))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + got.body
    (signature,) = [each for each in headers["webhook-signature"].split() if each.startswith("v1a,")]
    try:
        key.verify(b64decode(signature.removeprefix("v1a,")), signed)
    except InvalidSignature:
        return False
    return True


def test_a_key_pair_signs_beside_the_secret(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    endpoint = make(api, receiver.url, asymmetric_signature=True)
    path = f"/v1/webhooks/{endpoint['id']}"
    publish_one(tenant)
    dispatcher.run()
    api.post(f"{path}/test", {"event_type": "message.inbound"})
    api.post(f"/v1/webhook-deliveries/{Delivery.objects.all()[0].public_id}/replay")
    requests = [*receiver.pings, *receiver.received]
    assert len(requests) == 4
    assert all(is_signed(endpoint["public_key"], got) for got in requests)
    assert all(verifies(endpoint["secret"], got) for got in requests)
    api.patch(path, {"asymmetric_signature": False})
    renewed = api.patch(path, {"asymmetric_signature": True}).json()
    api.post(f"{path}/verify")
    assert is_signed(renewed["public_key"], receiver.pings[-1])
    assert not is_signed(endpoint["public_key"], receiver.pings[-1])


def test_a_secret_is_rotated_to_one_of_the_callers_own(api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver.url)
    path, own = f"/v1/webhooks/{endpoint['id']}", new_secret()
    assert_error(api.post(f"{path}/rotate-secret", {"secret": "whsec_short"}), 400, "invalid_request")
    assert api.post(f"{path}/rotate-secret", {"secret": own}).json()["secret"] == own
    api.post(f"{path}/verify")
    assert verifies(own, receiver.pings[-1])
    assert verifies(endpoint["secret"], receiver.pings[-1])


def test_an_endpoints_own_schedule_decides_when_a_delivery_is_given_up(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    endpoint = make(api, receiver.url, retry_schedule=[600, 5])
    assert endpoint["retry_schedule"] == [600, 5]
    receiver.answer = lambda _: web.Response(status=500)
    publish_one(tenant)
    waits = []
    for _ in range(3):
        Delivery.objects.update(next_attempt_at="2026-01-01T00:00:00Z")
        dispatcher.run()
        delivery = Delivery.objects.get()
        last = delivery.attempt_log[-1]["at"]
        waits.append(delivery.next_attempt_at and (delivery.next_attempt_at.isoformat() > last))
    assert (delivery.status, delivery.attempts, waits[-1]) == ("dead", 3, None)
    path = f"/v1/webhooks/{endpoint['id']}"
    assert api.patch(path, {"retry_schedule": None}).json()["retry_schedule"] is None
