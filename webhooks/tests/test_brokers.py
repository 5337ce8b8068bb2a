"""Events to Kafka topics and RabbitMQ exchanges: keys and headers, rejections, and permitted addresses of brokers."""

import asyncio
import socket
import socketserver
import ssl
import threading
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from aiokafka import errors

from gateway.clock import now
from gateway.http1 import new_tls_context
from gateway.outbound import client
from gateway.outbound.client import Answer, Outbound
from tenants.models import Tenant
from tests.certificates import self_signed
from tests.fixtures import Api, assert_error
from tests.receiver import Received, Receiver
from webhooks.delivery import dispatcher, senders
from webhooks.destinations import kinds, rabbitmq
from webhooks.destinations.interface import Message
from webhooks.destinations.kinds import Connections
from webhooks.models import Delivery, Endpoint
from webhooks.requests import verify_ping
from webhooks.tests.delivering import publish_one
from webhooks.tests.destinations import KEYS, KafkaBrokers, Rabbit, kafka, rabbit
from webhooks.tests.endpoints.test_lifecycle import verifies
from webhooks.tests.test_destinations import last, make

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["kafka", "rabbit"]


def test_a_topic_gets_the_envelope_signed_by_the_customers_key(
    api: Api, tenant: Tenant, kafka: KafkaBrokers
) -> None:
    endpoint = make(api, kafka.topic("orders"), ordered=True)
    assert endpoint["url"] == f"kafka://{kafka.servers}/orders"
    for n in range(3):
        publish_one(tenant, f"a{n}", wa_id="919800000001", phone_number_id="1")
    publish_one(tenant, "b0", wa_id="919800000002", phone_number_id="1")
    dispatcher.run()
    records = [each for each in kafka.records("orders", 5) if b"webhook.verify" not in each.value()]
    partitions: dict[tuple[bytes, int], list[str]] = {}
    for record in records:
        key = record.key(), record.partition()
        partitions.setdefault(key, []).append(orjson.loads(record.value())["dedupe_key"])
    assert sorted(partitions.values()) == [["a0", "a1", "a2"], ["b0"]]
    headers = {name: value.decode() for name, value in records[0].headers()}
    assert verifies(endpoint["secret"], Received("", headers, records[0].value(), 0.0))
    assert set(Delivery.objects.values_list("status", "last_error")) == {("delivered", None)}
    publish_one(tenant, "big", data=orjson.dumps({"text": "x" * 1_100_000}))
    dispatcher.run()
    assert (last(endpoint).status, last(endpoint).last_error) == ("dead", "event_too_large")


def test_an_exchange_gets_the_envelope_signed_and_routed_by_its_type(
    api: Api, tenant: Tenant, rabbit: Rabbit
) -> None:
    rabbit.bind("events")
    endpoint = make(api, rabbit.exchange("events"))
    for n in range(3):
        publish_one(tenant, f"k{n}")
    dispatcher.run()
    ping, *messages = rabbit.received("events")
    assert ping.delivery.routing_key == "webhook.verify"
    assert {each.delivery.routing_key for each in messages} == {"message.inbound"}
    assert {orjson.loads(each.body)["dedupe_key"] for each in messages} == {"k0", "k1", "k2"}
    properties = messages[0].header.properties
    assert properties.delivery_mode == 2, "it outlives the broker's restart"
    assert verifies(endpoint["secret"], Received("", properties.headers, messages[0].body, 0.0))
    assert set(Delivery.objects.values_list("status", "last_error")) == {("delivered", None)}


def test_what_a_broker_refuses_says_why_and_comes_again(api: Api, tenant: Tenant, rabbit: Rabbit) -> None:
    rabbit.bind("some", keys="webhook.verify")
    endpoint = make(api, rabbit.exchange("some"))
    publish_one(tenant)
    publish_one(tenant, "k2")
    dispatcher.run()
    delivery = last(endpoint)
    assert (delivery.status, delivery.last_error, delivery.last_http_status) == ("failed", "refused", None)
    (shown,) = api.get(f"/v1/webhook-deliveries/{delivery.public_id}").json()["attempt_log"]
    assert "DeliveryError" in shown["response_body"] or "PublishError" in shown["response_body"]
    rabbit.bind("some")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    assert set(Delivery.objects.values_list("status", flat=True)) == {"delivered"}
    for change, word in (({"exchange": "none"}, "NOT_FOUND"), ({"password": "wrong"}, "ACCESS_REFUSED")):
        given = rabbit.exchange("some", **change)["destination"]
        answer = api.patch(f"/v1/webhooks/{endpoint['id']}", {"destination": given})
        details = assert_error(answer, 422, "webhook_verify_failed")["details"]
        assert (details["error"], word in details["body_excerpt"]) == ("refused", True)


def test_after_a_connection_the_reason_of_an_earlier_failure_counts_no_more() -> None:
    destination = object.__new__(rabbitmq.RabbitMq)
    with pytest.raises(OSError, match="connection_error"), destination.noting():
        raise ConnectionRefusedError
    assert destination.failure(TimeoutError(), 0.0).error == "connection_error"
    with destination.noting():
        pass
    assert destination.failure(TimeoutError(), 0.0).error == "timeout"


@pytest.mark.parametrize("error", [errors.KafkaTimeoutError, errors.RequestTimedOutError])
def test_a_kafka_that_is_slow_is_a_timeout(error: type[Exception]) -> None:
    destination = object.__new__(kinds.KINDS["kafka"])
    assert destination.failure(error(), 0.0).error == "timeout"


def test_a_connection_that_a_refusal_closed_is_opened_again(rabbit: Rabbit) -> None:
    to = rabbitmq.RabbitMqSettings(**rabbit.exchange("missing")["destination"])
    message = Message(b"{}", {"X-Service-Event-Type": "message.inbound"}, None, 5.0)

    async def send_twice() -> list[str | None]:
        async with Outbound(allow_private=True) as outbound, aclosing(Connections(outbound)) as opened:
            refused = await opened.send(UUID(int=0), to, message)
            await asyncio.to_thread(rabbit.bind, "missing")
            return [refused.error, (await opened.send(UUID(int=0), to, message)).error]

    assert asyncio.run(send_twice()) == ["refused", None]
    assert len(rabbit.received("missing")) == 1


def sent(*messages: tuple[Any, Message]) -> list[str | None]:
    """Send an endpoint's messages one after another, each to its own destination. Returns the errors."""

    async def send() -> list[str | None]:
        async with Outbound(allow_private=True) as outbound, aclosing(Connections(outbound)) as opened:
            return [(await opened.send(UUID(int=0), to, each)).error for to, each in messages]

    return asyncio.run(send())


def test_a_topic_gets_the_key_of_an_ordered_event_alone(kafka: KafkaBrokers) -> None:
    to = kinds.KINDS["kafka"].SETTINGS(**kafka.topic("keys")["destination"])
    assert sent(*((to, Message(b"{}", {}, key, 5.0)) for key in (None, "17"))) == [None, None]
    assert {record.key() for record in kafka.records("keys", 2)} == {None, b"17"}


def test_beyond_the_most_open_destinations_each_message_still_arrives(
    kafka: KafkaBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "MOST_OPEN", 1)
    topics = [kinds.KINDS["kafka"].SETTINGS(**kafka.topic(name)["destination"]) for name in ("m1", "m2")]
    message = Message(b"{}", {}, None, 5.0)
    assert sent(*((to, message) for to in (*topics, *topics))) == [None] * 4
    assert [len(kafka.records(name, 2)) for name in ("m1", "m2")] == [2, 2]


def test_an_exchange_gets_the_routing_key_of_its_settings_also_once_they_have_changed(rabbit: Rabbit) -> None:
    rabbit.bind("routed")
    message, keys = (
        Message(b"{}", {"X-Service-Event-Type": "message.inbound"}, None, 5.0),
        ["shop.a", "shop.b"],
    )
    given = [rabbit.exchange("routed", routing_key=key)["destination"] for key in keys]
    assert sent(*((rabbitmq.RabbitMqSettings(**each), message) for each in given)) == [None, None]
    got = rabbit.received("routed")
    assert [each.delivery.routing_key for each in got] == keys
    assert got[0].header.properties.content_type == "application/json"


class Relay(socketserver.BaseRequestHandler):
    """Relays a connection to a port of this machine."""

    to = 0

    def handle(self) -> None:
        with closing(socket.create_connection(("127.0.0.1", self.to))) as upstream:
            threading.Thread(target=_pump, args=(upstream, self.request), daemon=True).start()
            _pump(self.request, upstream)


def _pump(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


class Relays(socketserver.ThreadingTCPServer):
    """A server of relays at another address of this machine."""

    address_family = socket.AF_INET6
    daemon_threads = True


def test_a_broker_that_another_one_names_is_checked_too(
    api: Api, kafka: KafkaBrokers, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Relay, "to", kafka.ports[0])
    with Relays(("::1", 0), Relay) as relays:
        threading.Thread(target=relays.serve_forever, args=(0.02,), daemon=True).start()
        settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
        allowed = {"::1"}
        monkeypatch.setattr(client, "is_public", lambda address: address in allowed)
        monkeypatch.setattr(verify_ping, "VERIFY_SECONDS", 2.0)
        answer = api.post(
            "/v1/webhooks", kafka.topic("named", bootstrap_servers=f"[::1]:{relays.server_address[1]}")
        )
        assert assert_error(answer, 422, "webhook_verify_failed")["details"]["error"] == "blocked_address"
        allowed.add("127.0.0.1")
        assert api.post(f"/v1/webhooks/{Endpoint.objects.get().id}/verify").status_code == 200
        relays.shutdown()
    assert len(kafka.records("named", 1)) == 1


class TlsRelays(socketserver.ThreadingTCPServer):
    """A server of relays that terminates TLS."""

    daemon_threads = True
    tls: ssl.SSLContext

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.settimeout(10)
        return self.tls.wrap_socket(connection, server_side=True), address


def test_the_certificates_of_brokers_are_verified(
    api: Api, rabbit: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path)
    monkeypatch.setattr(Relay, "to", rabbit.port)
    rabbit.bind("tls")
    with TlsRelays(("127.0.0.1", 0), Relay) as relays:
        relays.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        relays.tls.load_cert_chain(certificate)
        threading.Thread(target=relays.serve_forever, args=(0.02,), daemon=True).start()
        at = f"127.0.0.1:{relays.server_address[1]}"
        topic = {"bootstrap_servers": at, "topic": "t", "security_protocol": "SSL"}
        for given in (
            {"kind": "kafka", "destination": topic},
            rabbit.exchange("tls", url=f"amqps://{at}"),
        ):
            answer = api.post("/v1/webhooks", given)
            assert assert_error(answer, 422, "webhook_verify_failed")["details"]["error"] == "tls_error"
        pem = "-----BEGIN CERT" + certificate.read_text().partition("-----BEGIN CERT")[2]
        monkeypatch.setattr(rabbitmq, "tls_context", lambda: new_tls_context(trusted=pem))
        assert make(api, rabbit.exchange("tls", url=f"amqps://{at}"))["status"] == "active"
        relays.shutdown()
    assert len(rabbit.received("tls")) == 1


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1"])
@pytest.mark.parametrize("kind", ["kafka", "rabbitmq"])
def test_no_broker_is_at_an_address_that_is_not_public(
    other_api: Api, settings: Any, kind: str, host: str
) -> None:
    settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
    destination = {
        "kafka": {"bootstrap_servers": f"{host}:9", "topic": "t", "security_protocol": "SSL"},
        "rabbitmq": {"url": f"amqps://{host}", "username": "u", "password": "p"},
    }[kind]
    answer = other_api.post("/v1/webhooks", {"kind": kind, "destination": destination})
    assert assert_error(answer, 422, "webhook_verify_failed")["details"]["error"] == "blocked_address"


def test_connections_are_encrypted_where_webhooks_are(api: Api, settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP = False
    for kind, given in (
        ("kafka", {"bootstrap_servers": "b.example:9092", "topic": "t", "security_protocol": "PLAINTEXT"}),
        ("rabbitmq", {"url": "amqp://b.example", "username": "u", "password": "p"}),
        (
            "sqs",
            {
                "queue_url": "http://q.example/1/q",
                "region": "r",
                "access_key_id": "a",
                "secret_access_key": "b",
            },
        ),
    ):
        answer = api.post("/v1/webhooks", {"kind": kind, "destination": given})
        assert set(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == {"destination"}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("kafka", {"bootstrap_servers": "b.example", "topic": "t"}),
        ("kafka", {"bootstrap_servers": "b.example:9092", "topic": "a/b"}),
        ("kafka", {"bootstrap_servers": "b.example:9092", "topic": "t", "sasl_mechanism": "GSSAPI"}),
        ("kafka", {"bootstrap_servers": "b.example:9092", "topic": "t", "sasl_username": "u"}),
        ("kafka", {"bootstrap_servers": "[1]:9092", "topic": "t", "security_protocol": "SSL"}),
        ("kafka", {"bootstrap_servers": f"{'b' * 250}:9092," * 8 + "b:1", "topic": "t" * 200}),
        ("rabbitmq", {"url": "amqps://u:p@b.example/", "username": "u", "password": "p"}),
        ("rabbitmq", {"url": "amqps://[1]/", "username": "u", "password": "p"}),
        ("rabbitmq", {"url": "amqps://b.example/?ssl_verify=no", "username": "u", "password": "p"}),
    ],
)
def test_settings_that_lead_nowhere_are_refused(api: Api, kind: str, given: dict[str, str]) -> None:
    answer = api.post("/v1/webhooks", {"kind": kind, "destination": given})
    fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
    assert {name.partition(".")[0] for name in fields} == {"destination"}


@pytest.mark.parametrize("host", ["[1.2]", "[::1", "::1]", "[::g]", "[]", "b.example:0x1", ":1"])
def test_a_host_in_no_valid_form_is_refused_wherever_an_endpoint_names_one(api: Api, host: str) -> None:
    url, keys = f"https://{host}/a/b", {**KEYS, "bucket": "abc"}
    client = {"client_id": "a", "client_secret": "b"}
    user = {"username": "u", "password": "p"}
    for given in (
        {"url": url},
        {"url": "https://b.example", "oauth2": {"token_url": url, **client}},
        {"kind": "sqs", "destination": {**KEYS, "queue_url": url}},
        {"kind": "sqs", "destination": {**KEYS, "queue_url": "https://b.example/1/q", "endpoint_url": url}},
        {"kind": "s3", "destination": {**keys, "endpoint_url": url}},
        {"kind": "kafka", "destination": {"bootstrap_servers": f"{host}:9092", "topic": "t"}},
        {"kind": "rabbitmq", "destination": {"url": f"amqps://{host}/", **user}},
    ):
        answer = api.post("/v1/webhooks", given)
        assert (answer.status_code, given) == (400, given)


def test_a_service_without_the_client_says_so(
    api: Api, tenant: Tenant, kafka: KafkaBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = make(api, kafka.topic("installed"))
    monkeypatch.setattr(kinds.KINDS["kafka"], "CLIENT", "no_such_package")
    fields = assert_error(api.post("/v1/webhooks", kafka.topic("x")), 400, "invalid_request")["details"][
        "fields"
    ]
    assert "requirements-destinations.txt" in str(fields["destination"])
    publish_one(tenant)
    dispatcher.run()
    assert (last(endpoint).status, last(endpoint).last_error) == ("failed", "client_missing")


def test_a_user_whom_a_broker_refuses_sees_why(
    api: Api, kafka: KafkaBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiokafka.conn import AIOKafkaConnection
    from aiokafka.errors import AuthenticationFailedError

    async def refuse(_: object) -> None:
        raise AuthenticationFailedError("wrong password")

    # The brokers of these tests have no users. Those of `real_kafka.py` do.
    monkeypatch.setattr(AIOKafkaConnection, "_do_sasl_handshake", refuse)
    user = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "u", "sasl_password": "p"}
    answer = api.post("/v1/webhooks", kafka.topic("users", **user))
    details = assert_error(answer, 422, "webhook_verify_failed")["details"]
    assert (details["error"], "wrong password" in details["body_excerpt"]) == ("refused", True)
    assert answer.json()["error"]["message"] == "The destination did not accept the verify message."


@pytest.mark.parametrize("kind", ["kafka", "rabbitmq"])
def test_one_that_gives_up_cancels_no_sender(kind: str) -> None:
    async def send_both() -> list[Answer]:
        with closing(socket.create_server(("127.0.0.1", 0))) as silent:
            host = f"127.0.0.1:{silent.getsockname()[1]}"
            given = {
                "kafka": {"bootstrap_servers": host, "topic": "t", "security_protocol": "PLAINTEXT"},
                "rabbitmq": {"url": f"amqp://{host}", "username": "u", "password": "p"},
            }[kind]
            to = kinds.KINDS[kind].SETTINGS(**given)
            async with Outbound(allow_private=True) as outbound, aclosing(Connections(outbound)) as opened:
                # The opening has the time of the first sender, so the second gives up before the opening ends.
                messages = [Message(b"{}", {}, None, seconds) for seconds in (5.0, 0.2)]
                return await asyncio.gather(*(opened.send(UUID(int=0), to, each) for each in messages))

    assert [answer.error for answer in asyncio.run(send_both())] == ["connection_error", "timeout"]


@pytest.mark.parametrize("kind", ["webhook", "sqs", "s3", "kafka", "rabbitmq"])
def test_a_kind_that_hangs_and_fails_holds_up_nobody_else(
    api: Api,
    tenant: Tenant,
    other_api: Api,
    other_tenant: Tenant,
    receiver: Receiver,
    kafka: KafkaBrokers,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    # More requests hang than there are senders.
    settings.DELIVERY_CONCURRENCY = 8
    monkeypatch.setattr(senders, "SLOW_SECONDS", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0), backlog=128)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        hanging: dict[str, str] | None = {
            "webhook": None,
            "sqs": {**KEYS, "queue_url": f"http://{host}/1/q"},
            "s3": {**KEYS, "bucket": "abc", "endpoint_url": f"http://{host}"},
            "kafka": {"bootstrap_servers": host, "topic": "t", "security_protocol": "PLAINTEXT"},
            "rabbitmq": {"url": f"amqp://{host}", "username": "u", "password": "p"},
        }[kind]
        given = {"kind": kind, "destination": hanging} if hanging else {"url": f"http://{host}/hook"}
        made = make(api, given, status="pending", retry_schedule=[3600])
        Endpoint.objects.filter(pk=made["id"]).update(status="active", verified_at=now())
        for n in range(12):
            publish_one(tenant, f"h{n}")
        if kind == "s3":
            Delivery.objects.update(next_attempt_at=now())
        healthy = [make(other_api, {"url": receiver.url}), make(other_api, kafka.topic(f"beside-{kind}"))]
        running = threading.Thread(target=dispatcher.run)
        running.start()
        for n in range(20):
            publish_one(other_tenant, f"k{n}")
        receiver.wait_for(20, seconds=5)
        assert len(kafka.records(f"beside-{kind}", 21)) == 21
        hung = Delivery.objects.filter(endpoint_id=made["id"])
        assert set(hung.values_list("status", flat=True)) == {"pending"}
    running.join(60)
    errors = set(hung.exclude(status="pending").values_list("status", "last_error"))
    assert errors <= {("failed", "connection_error"), ("failed", "timeout")}
    assert errors
    beside = Delivery.objects.filter(endpoint_id__in=[each["id"] for each in healthy])
    assert list(beside.values_list("status", flat=True)) == ["delivered"] * 40
    assert Endpoint.objects.get(pk=made["id"]).consecutive_failures > 0
