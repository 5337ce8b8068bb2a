"""Events to queues, topics, exchanges and buckets: envelope, headers, retries and guards are the same as for HTTPS
endpoints.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.test import Client

from gateway.clock import now
from tenants.models import AuditEntry, Tenant
from tests.browsers import text
from tests.fixtures import Api, assert_error
from tests.receiver import Received
from webhooks import tasks, wake_up
from webhooks.delivery import dispatcher
from webhooks.destinations import archives, s3
from webhooks.destinations.aws_signature import AwsKeys, signed
from webhooks.destinations.kinds import KINDS
from webhooks.events.envelope import CALL_PREFIX
from webhooks.models import Delivery, Endpoint
from webhooks.requests.credentials import Credentials, packed
from webhooks.requests.signed_request import key_of, signature
from webhooks.tests.delivering import publish_one
from webhooks.tests.destinations import KEYS, Aws, aws
from webhooks.tests.endpoints.test_lifecycle import verifies
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["aws"]


def make(api: Api, given: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", {**given, **more})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def last(endpoint: dict[str, Any]) -> Delivery:
    return Delivery.objects.filter(endpoint_id=endpoint["id"]).latest("id")


def as_request(message: dict[str, Any]) -> Received:
    headers = {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}
    return Received("", headers, message["Body"].encode(), 0.0)


def test_a_queue_gets_the_envelope_signed_and_its_ping_first(api: Api, tenant: Tenant, aws: Aws) -> None:
    queue = aws.queue("plain")
    endpoint = make(api, queue, asymmetric_signature=True)
    assert (endpoint["status"], endpoint["url"]) == ("active", queue["destination"]["queue_url"])
    (ping,) = aws.received(queue)
    assert orjson.loads(ping["Body"])["type"] == "webhook.verify"
    text = {"id": "wamid.A", "timestamp": "1", "type": "text", "text": {"body": "\ufffe\uffff"}}
    unstorable = orjson.dumps({"message": text})
    event_id = publish_one(tenant, data=unstorable, raw=unstorable)
    dispatcher.run()
    (message,) = aws.received(queue)
    assert not set("\ufffe\uffff") & set(message["Body"])
    got = as_request(message)
    event = api.get("/v1/events").json()["data"][0]
    assert orjson.loads(got.body) == api.get(f"/v1/events/{event['id']}").json()["event"]
    assert verifies(endpoint["secret"], got)
    assert got.headers["webhook-id"] == event["id"]
    assert got.headers["X-Service-Event-Type"] == "message.inbound"
    assert set(got.headers) == {
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "X-Service-Event-Type",
        "X-Service-Delivery",
        "X-Service-Attempt",
    }, "a queue gets no headers that concern HTTP"
    delivery = last(endpoint)
    assert (delivery.event_id, delivery.status, delivery.last_http_status) == (event_id, "delivered", 200)
    assert delivery.attempt_log[0]["error"] is None
    example = api.post(f"/v1/webhooks/{endpoint['id']}/test", {"event_type": "message.status"}).json()
    assert example["delivered"]
    assert api.post(f"/v1/webhook-deliveries/{delivery.public_id}/replay").json()["status"] == "delivered"
    kinds = sorted(as_request(each).headers["X-Service-Event-Type"] for each in aws.received(queue))
    assert kinds == ["message.inbound", "message.status"]


def test_a_queue_is_reached_at_its_own_endpoint(api: Api, tenant: Tenant, aws: Aws) -> None:
    """A private network has another address for AWS than the one in the queue's URL."""
    queue = aws.queue("private")
    public = "https://sqs.ap-south-1.amazonaws.com/123456789012/private"
    make(
        api, {**queue, "destination": {**queue["destination"], "queue_url": public, "endpoint_url": aws.url}}
    )
    publish_one(tenant)
    dispatcher.run()
    assert len(aws.received(queue)) == 2, "the ping and the event"


def test_a_fifo_queue_keeps_the_order_of_a_customer(api: Api, tenant: Tenant, aws: Aws) -> None:
    queue = aws.queue("ordered.fifo", FifoQueue="true")
    endpoint = make(api, queue, ordered=True)
    aws.received(queue)
    for n in range(3):
        publish_one(tenant, f"a{n}", wa_id="919800000001", phone_number_id="1")
    publish_one(tenant, "b0", wa_id="919800000002", phone_number_id="1")
    dispatcher.run()
    got = aws.received(queue)
    groups: dict[str, list[str]] = {}
    for message in got:
        key = orjson.loads(message["Body"])["dedupe_key"]
        groups.setdefault(message["Attributes"]["MessageGroupId"], []).append(key)
    assert sorted(groups.values()) == [["a0", "a1", "a2"], ["b0"]]
    assert {each["Attributes"]["MessageDeduplicationId"] for each in got} == {
        orjson.loads(each["Body"])["id"] for each in got
    }
    Endpoint.objects.filter(pk=endpoint["id"]).update(ordered=False)
    for key in ("c0", "c1"):
        publish_one(tenant, key, wa_id="919800000001", phone_number_id="1")
    dispatcher.run()
    got = aws.received(queue)
    groups_and_ids = {
        (each["Attributes"]["MessageGroupId"], orjson.loads(each["Body"])["id"]) for each in got
    }
    assert {group for group, _ in groups_and_ids} == {event_id for _, event_id in groups_and_ids}, (
        "without order, each event is a group of its own"
    )


def test_what_a_queue_is_too_small_for_is_given_up_and_says_nothing_of_the_queue(
    api: Api, tenant: Tenant, aws: Aws
) -> None:
    endpoint = make(api, aws.queue("small", MaximumMessageSize="2048"))
    publish_one(tenant, "k1", data=orjson.dumps({"text": "x" * 3_000}))
    publish_one(tenant, "k2", data=orjson.dumps({"text": "x" * 1_100_000}))
    dispatcher.run()
    assert set(Delivery.objects.values_list("status", "last_error")) == {("dead", "event_too_large")}
    entries = api.get(f"/v1/webhook-deliveries/{last(endpoint).public_id}").json()["attempt_log"]
    assert [each["error"] for each in entries] == ["event_too_large"]
    assert Endpoint.objects.get(pk=endpoint["id"]).consecutive_failures == 0


def test_a_queue_that_is_gone_is_tried_again_by_the_schedule(api: Api, tenant: Tenant, aws: Aws) -> None:
    queue = aws.queue("going")
    endpoint = make(api, queue)
    aws.sqs.delete_queue(QueueUrl=queue["destination"]["queue_url"])
    publish_one(tenant)
    dispatcher.run()
    delivery = last(endpoint)
    assert (delivery.status, delivery.last_error, delivery.attempts) == ("failed", "http_4xx", 1)
    shown = api.get(f"/v1/webhook-deliveries/{delivery.public_id}").json()["attempt_log"]
    assert "NonExistentQueue" in shown[0]["response_body"] or "DoesNotExist" in shown[0]["response_body"]
    assert api.get(f"/v1/webhooks/{endpoint['id']}").json()["health"]["state"] == "failing"
    aws.queue("going")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    assert last(endpoint).status == "delivered"


def test_secrets_are_kept_behind_their_masks_and_written_nowhere(
    api: Api, tenant: Tenant, aws: Aws, other_api: Api
) -> None:
    queue = aws.queue("masked")
    endpoint = make(api, queue)
    path = f"/v1/webhooks/{endpoint['id']}"
    shown = api.get(path).json()
    assert shown["destination"] == {
        **queue["destination"],
        "endpoint_url": None,
        "secret_access_key": "***",
    }
    other = aws.queue("masked2")["destination"]["queue_url"]
    changed = api.patch(path, {"destination": {**shown["destination"], "queue_url": other}})
    assert (changed.status_code, changed.json()["url"]) == (200, other)
    assert KEYS["secret_access_key"] not in str([*AuditEntry.objects.values()])
    assert KEYS["secret_access_key"].encode() not in changed.content
    stored = Endpoint.objects.get(pk=endpoint["id"])
    assert KEYS["secret_access_key"] in (stored.credentials or "")
    assert_error(other_api.get(path), 404, "not_found")
    gone = {**shown["destination"], "queue_url": f"{other}-gone"}
    assert_error(api.patch(path, {"destination": gone}), 422, "webhook_verify_failed")
    assert api.get(path).json()["url"] == other


def test_settings_that_cannot_be_read_have_to_be_given_again(
    api: Api, tenant: Tenant, aws: Aws, settings: Any
) -> None:
    """Otherwise the endpoint would become a webhook at the queue's address."""
    queue = aws.queue("unreadable")
    endpoint = make(api, queue)
    path = f"/v1/webhooks/{endpoint['id']}"
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    assert api.post(f"{path}/rotate-secret").status_code == 200
    for signature_wanted in (True, False):
        refused = api.patch(path, {"asymmetric_signature": signature_wanted})
        assert list(assert_error(refused, 400, "invalid_request")["details"]["fields"]) == ["destination"]
    pings = len(aws.received(queue))
    given = {"asymmetric_signature": True, "destination": queue["destination"]}
    assert api.patch(path, given).status_code == 200
    publish_one(tenant)
    dispatcher.run()
    assert last(endpoint).status == "delivered"
    assert (pings, len(aws.received(queue))) == (1, 2), "the change needs a ping"


@pytest.mark.parametrize(
    ("kind", "secret"),
    {
        "sqs": "secret_access_key",
        "s3": "secret_access_key",
        "kafka": "sasl_password",
        "rabbitmq": "password",
    }.items(),
)
def test_a_destination_is_shown_with_all_its_members_and_a_mask_for_its_secret(
    api: Api, tenant: Tenant, kind: str, secret: str
) -> None:
    members = {name: f"the {name}" for name in KINDS[kind].SETTINGS._fields}
    stored = packed(Credentials(destination=KINDS[kind].SETTINGS(**members)))
    endpoint = endpoint_of(tenant, kind=kind, credentials=stored)
    for answer in (api.get(f"/v1/webhooks/{endpoint.id}").json(), api.get("/v1/webhooks").json()["data"][0]):
        assert answer["destination"] == {**members, secret: "***"}


@pytest.mark.parametrize(
    ("kind", "to", "secret"),
    [("kafka", "bootstrap_servers", "sasl_password"), ("rabbitmq", "url", "password")],
)
def test_another_broker_does_not_get_the_stored_password(
    api: Api, tenant: Tenant, kind: str, to: str, secret: str
) -> None:
    stored = packed(Credentials(destination=KINDS[kind].SETTINGS(**USABLE[kind])))
    path = f"/v1/webhooks/{endpoint_of(tenant, kind=kind, credentials=stored).id}"
    moved = {**USABLE[kind], to: USABLE[kind][to].replace("b.example", "stranger.example"), secret: "***"}
    answer = api.patch(path, {"destination": moved})
    assert f"Give `{secret}` again" in str(assert_error(answer, 400, "invalid_request")["details"]["fields"])


SQS = {**KEYS, "queue_url": "https://sqs.ap-south-1.amazonaws.com/1/q"}


@pytest.mark.parametrize(
    ("given", "member"),
    [
        ({"kind": "sqs"}, "destination"),
        ({"kind": "sqs", "destination": SQS, "url": "https://example.com"}, "url"),
        ({"kind": "sqs", "destination": SQS, "headers": {"A": "b"}}, "headers"),
        ({"kind": "sqs", "destination": SQS, "batch": {"events": 5}}, "batch"),
        ({"kind": "sqs", "destination": {**SQS, "bucket": "b"}}, "destination"),
        ({"kind": "sqs", "destination": {**SQS, "region": None}}, "destination"),
        ({"kind": "sqs", "destination": {**SQS, "region": "a b"}}, "destination"),
        ({"kind": "sqs", "destination": {**SQS, "queue_url": "ftp://example.com/1/q"}}, "destination"),
        ({"kind": "sqs", "destination": {**SQS, "secret_access_key": "***"}}, "destination"),
        ({"kind": "s3", "destination": {**KEYS, "bucket": "a/../b"}}, "destination"),
        ({"kind": "s3", "destination": {**KEYS, "bucket": "abc", "prefix": "a/../b"}}, "destination"),
        ({"kind": "s3", "destination": {**KEYS, "bucket": "abc"}, "ordered": True}, "ordered"),
        ({"url": "https://example.com", "destination": SQS}, "destination"),
    ],
)
def test_settings_of_another_kind_or_form_are_refused(api: Api, given: dict[str, Any], member: str) -> None:
    answer = api.post("/v1/webhooks", given)
    assert member in assert_error(answer, 400, "invalid_request")["details"]["fields"]
    assert not Endpoint.objects.exists()


OF_HTTPS: dict[str, Any] = {
    "url": "https://example.com",
    "format": "envelope",
    "verify_token": "t",
    "headers": {"A": "b"},
    "tls": {"ca": "pem"},
    "oauth2": {"token_url": "https://example.com", "client_id": "a", "client_secret": "b"},
    "batch": {"events": 5},
    "quiet_seconds": 5,
}
ORDER = {"ordered": True, "rate_per_second": 5}
FILTERS = {
    "event_types": ["*"],
    "waba_ids": ["1"],
    "filter": {"type": "x"},
    "uid": "u",
    "retry_schedule": [5],
}


@pytest.mark.parametrize(
    ("kind", "refused", "taken"),
    [
        ("webhook", {"destination": {}}, ORDER | FILTERS),
        ("sqs", OF_HTTPS, ORDER | FILTERS),
        ("s3", OF_HTTPS | ORDER, FILTERS),
        ("kafka", OF_HTTPS, ORDER | FILTERS),
        ("rabbitmq", OF_HTTPS, ORDER | FILTERS),
        ("inbox", OF_HTTPS | ORDER | FILTERS | {"destination": {}}, {"metadata": {"a": "b"}}),
    ],
)
def test_each_kind_has_the_members_that_it_can_use_and_no_others(
    api: Api, tenant: Tenant, kind: str, refused: dict[str, Any], taken: dict[str, Any]
) -> None:
    path = f"/v1/webhooks/{endpoint_of(tenant, kind=kind).id}"
    of_kind: dict[str, dict[str, Any]] = {"webhook": {"url": "https://example.com"}, "inbox": {}}
    needed = of_kind.get(kind, {"destination": {}})
    answer = api.post("/v1/webhooks", {"kind": kind, **needed, **refused})
    assert set(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == set(refused)
    if kind == "inbox":
        for name in FILTERS:
            assert_error(api.patch(path, {name: refused[name]}), 409, "conflict")
    else:
        # A change may have the endpoint's own format, and the token is refused with the format.
        changes = {name: value for name, value in refused.items() if name not in {"format", "verify_token"}}
        answer = api.patch(path, changes)
        assert set(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == set(changes)
    changed = api.patch(path, taken).json()
    assert {name: changed[name] for name in taken} == taken


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1:9", "[::1]:9"])
@pytest.mark.parametrize("kind", ["sqs", "s3"])
def test_no_destination_leads_to_an_address_that_is_not_public(
    other_api: Api, settings: Any, kind: str, host: str
) -> None:
    settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS = False
    where = {
        "sqs": {"queue_url": f"http://{host}/1/q"},
        "s3": {"bucket": "abc", "endpoint_url": f"http://{host}"},
    }
    answer = other_api.post("/v1/webhooks", {"kind": kind, "destination": {**KEYS, **where[kind]}})
    error = assert_error(answer, 422, "webhook_verify_failed")
    assert (error["details"]["error"], error["details"]["http_status"]) == ("blocked_address", None)
    assert "Repair its settings or permissions" in error["hint"]
    assert Endpoint.objects.get().status == "pending"


@pytest.mark.parametrize("host", ["aws.example", "aws.example:9000"])
@pytest.mark.parametrize("service", ["sqs", "s3"])
def test_requests_are_signed_as_botocore_signs_them(
    service: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import botocore.auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    at = datetime(2026, 11, 26, 12, 0, 1, tzinfo=UTC)
    url, body = f"https://{host}/shop/dt%3D1/a.jsonl", b'{"a": 1}\n'
    headers = {"Content-Type": "application/x-ndjson", "x-amz-meta-webhook-id": "evt_1  2"}
    keys = AwsKeys(KEYS["access_key_id"], KEYS["secret_access_key"], KEYS["region"], service)
    ours = signed("PUT", url, headers, body, keys=keys, at=at)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: at)
    signer = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    if service == "sqs":
        url = f"https://{host}/"
        ours = signed("PUT", url, headers, body, keys=keys, at=at)
    request = AWSRequest("PUT", url, dict(headers), body)
    request.headers["X-Amz-Content-SHA256"] = ours["X-Amz-Content-SHA256"]
    signer(Credentials(keys.access_key_id, keys.secret_access_key), service, keys.region).add_auth(request)
    assert request.headers["Authorization"] == ours["Authorization"]


def test_an_archive_holds_each_event_in_a_line(
    api: Api, tenant: Tenant, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Fresh deliveries and calls would be handed over at once to endpoints of other kinds.
    monkeypatch.setattr(wake_up, "may_hand_over", lambda: True)
    endpoint = make(api, aws.bucket("archive", prefix="shop=1/"))
    assert endpoint["url"] == "s3://archive/shop=1/"
    body, began = b'{"a":\n 1}', now()
    for n in range(40):
        publish_one(tenant, f"k{n}", raw=body)
    publish_one(tenant, f"{CALL_PREFIX}1", type="call.connect")
    waiting = Delivery.objects.filter(endpoint_id=endpoint["id"])
    states = set(waiting.values_list("next_attempt_at", "leased_until", "customer_key"))
    ((due, *held),) = states
    assert due is not None
    assert held == [None, None]
    spread = due - began.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    assert timedelta() <= spread <= timedelta(seconds=255), "archives do not all write at the same moment"
    dispatcher.run()
    assert set(waiting.values_list("status", flat=True)) == {"pending"}
    waiting.update(next_attempt_at=now())
    dispatcher.run()
    assert set(waiting.values_list("status", "attempts")) == {("delivered", 1)}
    objects = aws.objects("archive")
    assert all(name.startswith(f"shop=1/{now():%Y/%m/%d}/") for name in objects)
    moment = datetime(2026, 11, 29, 15, 30, tzinfo=UTC)
    monkeypatch.setattr(s3, "now", lambda: moment)
    publish_one(tenant, "in the afternoon", raw=body)
    waiting.filter(status="pending").update(next_attempt_at=now())
    dispatcher.run()
    (later,) = aws.objects("archive").keys() - objects
    assert later.startswith("shop=1/2026/11/29/15/20261129T153000-")
    ping, *others = sorted(objects.values(), key=len)
    assert orjson.loads(ping)["type"] == "webhook.verify"
    assert len(others) < 10, "an object holds what is claimed together"
    lines = [orjson.loads(line) for each in others for line in each.splitlines()]
    assert sorted(each["dedupe_key"] for each in lines) == sorted(
        [*(f"k{n}" for n in range(40)), f"{CALL_PREFIX}1"]
    )
    assert lines[0]["raw"] in ({"a": 1}, None)


def test_an_archive_is_delivered_once_its_object_is_stored(api: Api, tenant: Tenant, aws: Aws) -> None:
    endpoint = make(api, aws.bucket("later"))
    for name in aws.objects("later"):
        aws.s3.delete_object(Bucket="later", Key=name)
    aws.s3.delete_bucket(Bucket="later")
    publish_one(tenant, "k1")
    publish_one(tenant, "k2")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    assert set(Delivery.objects.values_list("status", "last_error")) == {("failed", "http_4xx")}
    assert Endpoint.objects.get(pk=endpoint["id"]).consecutive_failures == 1
    aws.bucket("later")
    Delivery.objects.update(next_attempt_at=now())
    dispatcher.run()
    assert set(Delivery.objects.values_list("status", "attempts")) == {("delivered", 2)}
    ((name, stored),) = aws.objects("later").items()
    assert len(stored.splitlines()) == 2
    found = aws.s3.head_object(Bucket="later", Key=name)
    assert found["ContentType"] == "application/x-ndjson"
    signed_by_us = signature(
        [key_of(endpoint["secret"])],
        message_id=found["Metadata"]["webhook-id"],
        timestamp=int(found["Metadata"]["webhook-timestamp"]),
        body=stored,
    )
    assert found["Metadata"]["webhook-signature"] == signed_by_us


def _closing(call: Callable[[], int]) -> int:
    """Call a function in a thread, and then close the thread's database connection."""
    try:
        return call()
    finally:
        connection.close()


def test_what_fills_an_object_does_not_wait_for_the_hour(
    api: Api, tenant: Tenant, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FULL_OBJECT", 3)
    endpoint = make(api, aws.bucket("full"))
    publish_one(tenant, "k1")
    publish_one(tenant, "k2")
    assert archives.hurry() == 0
    publish_one(tenant, "k3")
    Endpoint.objects.filter(pk=endpoint["id"]).update(status="paused")
    assert archives.hurry() == 0
    Endpoint.objects.filter(pk=endpoint["id"]).update(status="active")
    with ThreadPoolExecutor(4) as threads:
        early = list(threads.map(lambda _: _closing(archives.hurry), range(4)))
    assert sum(early) >= 3, "between them they leave none, and one that began early makes some due once more"
    dispatcher.run()
    assert set(Delivery.objects.values_list("status", "attempts")) == {("delivered", 1)}


@pytest.mark.parametrize(
    ("kind", "columns", "hurried"),
    [
        ("s3", {}, 2),
        ("webhook", {}, 0),
        ("s3", {"status": "failed", "attempts": 1}, 0),
        ("s3", {"leased_until": "2999-01-01T00:00:00Z"}, 0),
    ],
)
def test_only_first_attempts_of_archives_are_made_before_the_hour_ends(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, kind: str, columns: dict[str, Any], hurried: int
) -> None:
    monkeypatch.setattr(archives, "FULL_OBJECT", 2)
    endpoint_of(tenant, kind=kind)
    for key in ("k1", "k2"):
        publish_one(tenant, key)
    Delivery.objects.update(next_attempt_at=now() + timedelta(minutes=30), **columns)
    tasks.hurry_archives.run()
    assert Delivery.objects.filter(next_attempt_at__lte=now()).count() == hurried


USABLE: dict[str, dict[str, str]] = {
    "sqs": SQS,
    "s3": {**KEYS, "bucket": "abc"},
    "kafka": {
        "bootstrap_servers": "b.example:9092",
        "topic": "t",
        "sasl_username": "u",
        "sasl_password": "p",
    },
    "rabbitmq": {"url": "amqps://b.example", "username": "u", "password": "p"},
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *(("kafka", {"sasl_mechanism": name}) for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        ("kafka", {"security_protocol": "SSL"}),
        ("kafka", {"bootstrap_servers": ",".join(f"b{n}.example:{n}" for n in range(10))}),
        ("kafka", {"bootstrap_servers": "[2001:db8::1]:65535", "topic": "a.b_c-1" * 35}),
        ("rabbitmq", {"url": "amqps://b.example:5671/shop%2Fa", "exchange": "x" * 255}),
        ("rabbitmq", {"url": "amqps://[2001:db8::1]/", "routing_key": "a b#*"}),
        ("s3", {"bucket": "a" * 63, "prefix": "A_b.c=1/-" + "d" * 191}),
        ("s3", {"endpoint_url": "https://store.example:9000", "region": "eu-west-1"}),
        ("sqs", {"endpoint_url": "https://queue.example", "access_key_id": "A" * 128}),
    ],
)
def test_settings_of_every_form_can_be_used(settings: Any, kind: str, change: dict[str, str]) -> None:
    settings.WEBHOOK_ALLOW_HTTP = False
    assert KINDS[kind].problem(KINDS[kind].SETTINGS(**{**USABLE[kind], **change})) is None


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("kafka", {"security_protocol": "SASL_PLAINTEXT"}),
        ("kafka", {"sasl_password": ""}),
        ("kafka", {"bootstrap_servers": ",".join(["b.example:9092"] * 11)}),
        ("kafka", {"bootstrap_servers": "b.example:909200"}),
        ("kafka", {"topic": "t" * 250}),
        ("rabbitmq", {"url": "amqp://b.example"}),
        ("rabbitmq", {"url": "amqps://b.example:567100"}),
        ("rabbitmq", {"exchange": "x" * 256}),
        ("rabbitmq", {"routing_key": "a\n"}),
        ("s3", {"bucket": "ab"}),
        ("s3", {"bucket": "a" * 64}),
        ("s3", {"bucket": "-bc"}),
        ("s3", {"bucket": "Abc"}),
        ("s3", {"prefix": "/a"}),
        ("s3", {"prefix": "a" * 201}),
        ("s3", {"region": "EU"}),
        ("s3", {"access_key_id": "A" * 129}),
        ("s3", {"endpoint_url": "http://store.example"}),
        ("sqs", {"endpoint_url": "https://a:b@queue.example"}),
        ("sqs", {"access_key_id": "a b"}),
    ],
)
def test_settings_of_no_use_are_explained(settings: Any, kind: str, change: dict[str, str]) -> None:
    settings.WEBHOOK_ALLOW_HTTP = False
    assert KINDS[kind].problem(KINDS[kind].SETTINGS(**{**USABLE[kind], **change}))


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("sqs", "https://sqs.ap-south-1.amazonaws.com/1/q"),
        ("s3", "s3://abc/"),
        ("kafka", "kafka://b.example:9092/t"),
        ("rabbitmq", "amqps://b.example/#"),
    ],
)
def test_the_url_of_a_destination_has_no_secret(kind: str, url: str) -> None:
    assert KINDS[kind].address(KINDS[kind].SETTINGS(**USABLE[kind])) == url


def test_the_console_makes_and_changes_one(browser: Client, tenant: Tenant, aws: Aws) -> None:
    queue = aws.queue("console")
    given = "\n".join(f"{name}: {value}" for name, value in queue["destination"].items())
    form = {"kind": "sqs", "destination": given, "event_types": ["*"], "exhausted_mail_threshold": "1"}
    answer = browser.post("/console/webhooks", form)
    assert answer.status_code == 200, answer.content
    endpoint = Endpoint.objects.get()
    assert (endpoint.kind, endpoint.status, endpoint.url) == (
        "sqs",
        "active",
        queue["destination"]["queue_url"],
    )
    assert endpoint.url in text(browser, "/console/webhooks")
    page = text(browser, f"/console/webhooks/{endpoint.id}/change")
    assert "secret_access_key: ***" in page
    assert KEYS["secret_access_key"] not in page
    assert "Seconds between attempts" in page
    assert not {"Verify token", "Client certificate", "null"} & {*page.replace("<", ">").split(">")}
    other = aws.queue("console2")["destination"]["queue_url"]
    changed = given.replace(endpoint.url, other).replace(KEYS["secret_access_key"], "***")
    change = {**form, "destination": changed, "description": "shop"}
    assert browser.post(f"/console/webhooks/{endpoint.id}/change", change).status_code == 302
    endpoint.refresh_from_db()
    assert (endpoint.url, endpoint.description) == (other, "shop")
    gone = {**change, "destination": changed.replace(other, f"{other}-gone")}
    refused = browser.post(f"/console/webhooks/{endpoint.id}/change", gone).content.decode()
    assert "HTTP 400" in refused
    wrong = browser.post("/console/webhooks", {**form, "destination": "region: x"})
    assert "needs `queue_url`" in wrong.content.decode()
