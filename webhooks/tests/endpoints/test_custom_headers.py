"""The caller's own headers: sent with every request to the endpoint, encrypted at rest, never shown again."""

from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as django_settings
from django.db import connection

from gateway.encryption import encrypt
from tenants.models import AuditEntry, Tenant
from tests.fixtures import Api, assert_error
from tests.receiver import Receiver
from webhooks.delivery import dispatcher
from webhooks.models import Delivery, Endpoint
from webhooks.requests.signed_request import headers_problem
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)

CREDENTIAL = "Bearer s3cret-of-the-shop"
GIVEN = {"Authorization": CREDENTIAL, "X-Shop": "17"}
SHOWN = {"Authorization": "***", "X-Shop": "***"}


def make(api: Api, receiver: Receiver, **given: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", {"url": receiver.url, "headers": GIVEN, **given})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def sent(got: Any) -> dict[str, str]:
    return {name: got.headers[name] for name in GIVEN if name in got.headers}


def test_they_are_sent_with_pings_deliveries_examples_and_replays(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    endpoint = make(api, receiver)
    publish_one(tenant, "k1")
    dispatcher.run()
    api.post(f"/v1/webhooks/{endpoint['id']}/test", {"event_type": "message.inbound"})
    api.post(f"/v1/webhook-deliveries/{Delivery.objects.get().public_id}/replay")
    api.post(f"/v1/webhooks/{endpoint['id']}/verify")
    assert [sent(got) for got in receiver.received] == [GIVEN] * 3
    assert [sent(got) for got in receiver.pings] == [GIVEN] * 2
    assert receiver.received[0].headers["Content-Type"] == "application/json"


def test_values_are_encrypted_and_never_shown(api: Api, staff_api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver)
    path = f"/v1/webhooks/{endpoint['id']}"
    answers = [
        api.get(path),
        api.get("/v1/webhooks"),
        api.patch(path, {"description": "x"}),
        api.post(f"{path}/resume"),
    ]
    assert endpoint["headers"] == SHOWN
    assert [answer.json()["headers"] for answer in answers if "data" not in answer.json()] == [SHOWN] * 3
    assert not [answer for answer in answers if b"s3cret" in answer.content]
    assert "s3cret" not in str(list(AuditEntry.objects.values()))
    with connection.cursor() as cursor:
        cursor.execute("SELECT headers FROM webhooks_endpoint")
        assert "s3cret" not in str(cursor.fetchone())


def test_a_change_replaces_them_and_the_mask_keeps_a_value(api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver)
    path = f"/v1/webhooks/{endpoint['id']}"
    read = api.get(path).json()
    changed = api.patch(path, {"headers": {**read["headers"], "X-New": "n"}}).json()
    assert changed["headers"] == {**SHOWN, "X-New": "***"}
    in_capitals = {name.upper(): "***" for name in changed["headers"]}
    assert api.patch(path, {"headers": in_capitals}).json()["headers"] == in_capitals
    api.patch(path, {"headers": changed["headers"]})
    api.post(f"{path}/verify")
    assert sent(receiver.pings[-1]) == GIVEN
    assert receiver.pings[-1].headers["X-New"] == "n"
    assert api.patch(path, {"headers": {"X-Shop": "18"}}).json()["headers"] == {"X-Shop": "***"}
    api.post(f"{path}/verify")
    assert sent(receiver.pings[-1]) == {"X-Shop": "18"}
    bodies: list[dict[str, Any]] = [{"headers": None}, {"headers": {}}]
    for body in bodies:
        api.patch(path, {"headers": GIVEN})
        assert api.patch(path, body).json()["headers"] == {}
        assert Endpoint.objects.get().headers is None


def test_a_new_url_is_pinged_with_the_new_headers(api: Api, receiver: Receiver) -> None:
    endpoint = make(api, receiver)
    new = {"url": f"{receiver.url}/new", "headers": {"X-Shop": "18"}}
    assert api.patch(f"/v1/webhooks/{endpoint['id']}", new).status_code == 200
    assert (receiver.pings[-1].path, sent(receiver.pings[-1])) == ("/hook/new", {"X-Shop": "18"})


def test_what_cannot_be_sent_is_refused_and_changes_nothing(api: Api, receiver: Receiver) -> None:
    wrong: list[Any] = [
        {"Content-Length": "5"},
        {"HOST": "bank.example"},
        {"transfer-encoding": "chunked"},
        {"Connection": "close"},
        {"Webhook-Signature": "v1,x"},
        {"X-Service-Test": "true"},
        {"X-Hub-Signature-256": "x"},
        {"Proxy-Authorization": "x"},
        {"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        {"tracestate": "x=1"},
        {"X A": "x"},
        {"X:": "x"},
        {"X-Ä": "x"},
        {"": "x"},
        {"X-A": "x\r\nX-B: y"},
        {"X-A": "ä"},
        {"X-A": "x\0"},
        {"X-A": ""},
        {"X-A": "x" * 4097},
        {f"X-{number}": "x" * 100 for number in range(40)},
        {"X-A": "1", "x-a": "2"},
        {"X-A": {}},
        {"X-New": "***"},
        ["X-A: x"],
        "X-A: x",
    ]
    endpoint = make(api, receiver)
    before = Endpoint.objects.values().get()
    for headers in wrong:
        for answer in (
            api.post("/v1/webhooks", {"url": receiver.url, "headers": headers}),
            api.patch(f"/v1/webhooks/{endpoint['id']}", {"headers": headers}),
        ):
            error = assert_error(answer, 400, "invalid_request")
            assert [name.partition(".")[0] for name in error["details"]["fields"]] == ["headers"], headers
    assert Endpoint.objects.values().get() == before


def test_headers_of_the_connection_and_of_the_body_are_the_services() -> None:
    names = "Accept Accept-Encoding Content-Encoding Content-Type Expect HTTP2-Settings Keep-Alive TE Trailer Upgrade"
    for name in (*names.split(), "User-Agent"):
        assert headers_problem({name: "x"}) == f"`{name}` is set by the service."
    assert headers_problem({"Accept-Language": "de", "X-!#$%&'*+.^_`|~9": "a \t b"}) is None


def test_exactly_four_kibibytes_are_taken_and_sent(api: Api, tenant: Tenant, receiver: Receiver) -> None:
    value = "x" * (4096 - len("X-Long") - len(": \r\n"))
    make(api, receiver, headers={"X-Long": value})
    publish_one(tenant)
    dispatcher.run()
    assert receiver.received[0].headers["X-Long"] == value
    assert "4096 bytes" in (headers_problem({"X-Long": value + "x"}) or "")


@pytest.mark.parametrize(
    ("column", "text", "given"),
    [
        ("headers", '{"X-Shop": "17"}', {"headers": GIVEN}),
        ("credentials", '{"tls": null, "oauth2": null, "seed": "00"}', {"asymmetric_signature": True}),
    ],
)
def test_what_no_key_opens_holds_deliveries_back_until_it_is_set_again(
    api: Api, tenant: Tenant, receiver: Receiver, settings: Any, column: str, text: str, given: dict[str, Any]
) -> None:
    endpoint = make(api, receiver)
    path = f"/v1/webhooks/{endpoint['id']}"
    publish_one(tenant)
    current = django_settings.ENCRYPTION_KEYS
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    lost = encrypt(text, purpose=f"webhook_{column}")
    settings.ENCRYPTION_KEYS = current
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE webhooks_endpoint SET {column} = %s", [lost])  # noqa: S608 - a column's name
    dispatcher.run()
    assert receiver.received == [], "nothing goes out without the credential that the receiver asks for"
    shown = api.get(path).json()
    assert shown["health"]["reason"]["error"] == "secret_unreadable"
    assert (shown["headers"], shown["public_key"]) == ({} if column == "headers" else SHOWN, None)
    assert_error(api.post(f"{path}/verify"), 409, "conflict")
    assert api.patch(path, given).status_code == 200
    dispatcher.run()
    assert [sent(got) for got in receiver.received] == [GIVEN]
