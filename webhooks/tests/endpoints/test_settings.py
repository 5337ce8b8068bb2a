"""Settings of an endpoint: its accounts and numbers, its `uid` and `metadata`."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from gateway.clock import isoformat, now
from gateway.upstream.notifications import change as message_facts
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, in_threads
from tests.receiver import Receiver
from webhooks.delivery.caps import Room
from webhooks.delivery.claim_statements import claim
from webhooks.events.envelope import EXPLICIT_TYPES, STATUSES
from webhooks.models import Delivery, Endpoint, Event
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import dead_delivery, endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)


def make(api: Api, receiver: Receiver, **settings: Any) -> dict[str, Any]:
    answer = api.post("/v1/webhooks", {"url": receiver.url, **settings})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def missed(api: Api, endpoint: dict[str, Any]) -> int:
    """How many events a replay of missed events would queue."""
    hour = timedelta(hours=1)
    asked = {"from": isoformat(now() - hour), "to": isoformat(now() + hour), "status": ["missed"]}
    return int(api.post(f"/v1/webhooks/{endpoint['id']}/replay", {**asked, "preview": True}).json()["count"])


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, "account number other none"),
        ({"waba_ids": ["1"]}, "account number"),
        ({"waba_ids": ["1", "2"]}, "account number other"),
        ({"phone_number_ids": ["10"]}, "number"),
        ({"phone_number_ids": ["10", "20"]}, "number other"),
        ({"waba_ids": ["2"], "phone_number_ids": ["10"]}, ""),
        ({"waba_ids": ["1"], "event_types": ["template.status"]}, "account"),
        ({"waba_ids": None, "phone_number_ids": None}, "account number other none"),
    ],
)
def test_events_of_the_chosen_accounts_and_numbers_are_delivered_and_replayed_as_missed(
    api: Api, tenant: Tenant, receiver: Receiver, settings: dict[str, Any], wanted: str
) -> None:
    def publish(prefix: str) -> set[str]:
        publish_one(tenant, f"{prefix} account", type="template.status", waba_id="1", phone_number_id=None)
        publish_one(tenant, f"{prefix} number", waba_id="1", phone_number_id="10")
        publish_one(tenant, f"{prefix} other", waba_id="2", phone_number_id="20")
        publish_one(tenant, f"{prefix} none", type="meta.other", phone_number_id=None)
        return {f"{prefix} {name}" for name in wanted.split()}

    publish("before")
    endpoint = make(api, receiver, **settings)
    expected = publish("after")
    keys = dict(Event.objects.values_list("id", "dedupe_key"))
    assert {keys[row.event_id] for row in Delivery.objects.all()} == expected
    assert missed(api, endpoint) == len(expected), "those from before the endpoint"


def test_types_that_must_be_named_are_delivered_and_replayed_to_who_names_them(
    api: Api, tenant: Tenant
) -> None:
    every, named = endpoint_of(tenant), endpoint_of(tenant, event_types=list(EXPLICIT_TYPES))
    kinds = (*EXPLICIT_TYPES, "message.inbound")
    for kind in kinds:
        publish_one(tenant, kind, type=kind)
    got = {
        endpoint: {row.event_type for row in Delivery.objects.filter(endpoint_id=endpoint.id)}
        for endpoint in (every, named)
    }
    assert got == {every: {"message.inbound"}, named: set(EXPLICIT_TYPES)}
    Delivery.objects.all().delete()
    assert [missed(api, {"id": endpoint.id}) for endpoint in (every, named)] == [1, len(EXPLICIT_TYPES)]


@pytest.mark.parametrize("status", Endpoint.Status.values)
def test_only_an_active_endpoint_gets_events_and_has_its_deliveries_sent(tenant: Tenant, status: str) -> None:
    endpoint = endpoint_of(tenant, status=status)
    publish_one(tenant)
    is_active = status == "active"
    assert Delivery.objects.exists() is is_active
    event = Event.objects.get()
    dead_delivery(endpoint, event)
    Delivery.objects.update(status="failed", next_attempt_at=now())
    assert bool(claim(Room(5, 5))) is is_active


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        (None, "sent delivered read failed:49152 text"),
        (["read", "failed"], "read failed:49152 text"),
        (["sent"], "sent text"),
    ],
)
def test_only_the_chosen_statuses_are_delivered_and_replayed_as_missed(
    api: Api, tenant: Tenant, receiver: Receiver, statuses: list[str] | None, wanted: str
) -> None:
    def publish(wamid: str) -> set[str]:
        for status in ("sent", "delivered", "read", "failed:49152"):
            publish_one(tenant, f"status:{wamid}:{status}", type="message.status", wamid=wamid)
        publish_one(tenant, f"msg:{wamid}", wamid=wamid)
        return {f"msg:{wamid}" if name == "text" else f"status:{wamid}:{name}" for name in wanted.split()}

    publish("wamid.before")
    endpoint = make(api, receiver, statuses=statuses)
    assert endpoint["statuses"] == statuses
    expected = publish("wamid.with:colon=")
    keys = dict(Event.objects.values_list("id", "dedupe_key"))
    assert {keys[row.event_id] for row in Delivery.objects.all()} == expected
    assert missed(api, endpoint) == len(expected), "those from before the endpoint"


def test_a_status_of_a_message_whose_id_is_too_long_to_store_is_filtered_too(
    api: Api, tenant: Tenant, receiver: Receiver
) -> None:
    make(api, receiver, statuses=["read"])
    for name in ("delivered", "read"):
        facts = message_facts.of_status({"id": "w" * 300, "status": name})
        publish_one(tenant, f"status:hash of {name}", type="message.status", message=facts)
    keys = dict(Event.objects.values_list("id", "dedupe_key"))
    assert [keys[row.event_id] for row in Delivery.objects.all()] == ["status:hash of read"]


def test_settings_are_shown_and_changed(api: Api, receiver: Receiver) -> None:
    given = {
        "waba_ids": ["1"],
        "phone_number_ids": ["10", "20"],
        "statuses": ["read", "failed"],
        "timeout_seconds": 30,
        "rate_per_second": 1000,
        "uid": "shop-17",
        "metadata": {"team": "orders", "note": ""},
    }
    endpoint = make(api, receiver, **{**given, "phone_number_ids": ["10", "20", "10"]})
    assert {name: endpoint[name] for name in given} == given
    path = f"/v1/webhooks/{endpoint['id']}"
    new: dict[str, Any] = {**dict.fromkeys(given), "metadata": {}}
    changed = api.patch(path, new).json()
    assert {name: changed[name] for name in given} == new
    assert len(receiver.pings) == 1


@pytest.mark.parametrize(
    "given",
    [
        {
            "description": "x" * 500,
            "waba_ids": [str(n) for n in range(500)],
            "phone_number_ids": ["1" * 64],
            "statuses": list(STATUSES),
            "timeout_seconds": 30,
            "rate_per_second": 1_000,
            "exhausted_mail_threshold": 1_000_000,
            "retry_schedule": [86_400] * 7,
            "uid": "x" * 255,
            "metadata": {f"{n:040}": "y" * 500 for n in range(50)},
            "batch": {"events": 100, "milliseconds": 1_000},
        },
        {
            "timeout_seconds": 1,
            "rate_per_second": 1,
            "exhausted_mail_threshold": 1,
            "retry_schedule": [1] * 19,
            "metadata": {"n": ""},
            "batch": {"events": 2, "milliseconds": 1},
        },
        {"ordered": True, "quiet_seconds": 60},
        {"ordered": True, "quiet_seconds": 1},
    ],
    ids=["greatest", "least", "longest collection", "shortest collection"],
)
def test_values_up_to_their_limits_are_taken(api: Api, tenant: Tenant, given: dict[str, Any]) -> None:
    changed = api.patch(f"/v1/webhooks/{endpoint_of(tenant).id}", given).json()
    assert {name: changed.get(name) for name in given} == given


BAD: dict[str, list[Any]] = {
    "waba_ids": [[], "1"],
    "phone_number_ids": [["+91"], [str(n) for n in range(501)]],
    "statuses": [[], ["red"]],
    "timeout_seconds": [0, 31, 1.5],
    "rate_per_second": [0, 1001],
    "ordered": [None, "perhaps"],
    "exhausted_mail_threshold": [0, 1_000_001],
    "description": ["x" * 501],
    "uid": ["", "x" * 256],
    "metadata": [
        [], None, {"x": "y" * 501}, {"x": {}}, {"x" * 41: "y"}, {"x\0": "y"}, {"x": "y\0"},
        {f"{n}": "" for n in range(51)},
    ],
}  # fmt: skip


@pytest.mark.parametrize("field", BAD)
def test_bad_settings_are_named_and_change_nothing(api: Api, receiver: Receiver, field: str) -> None:
    endpoint = make(api, receiver)
    before = Endpoint.objects.values().get()
    for value in BAD[field]:
        for answer in (
            api.post("/v1/webhooks", {"url": receiver.url, field: value}),
            api.patch(f"/v1/webhooks/{endpoint['id']}", {field: value}),
        ):
            error = assert_error(answer, 400, "invalid_request")
            assert [name.partition(".")[0] for name in error["details"]["fields"]] == [field], value
    assert Endpoint.objects.values().get() == before


class TestUid:
    def test_finds_the_endpoint(self, api: Api, other_api: Api, receiver: Receiver) -> None:
        endpoint = make(api, receiver, uid="shop-17")
        make(api, receiver)
        assert [row["id"] for row in api.get("/v1/webhooks?uid=shop-17").json()["data"]] == [endpoint["id"]]
        assert api.get("/v1/webhooks?uid=shop-18").json()["data"] == []
        assert other_api.get("/v1/webhooks?uid=shop-17").json()["data"] == []

    def test_is_once_in_a_tenants_environment(
        self, api: Api, other_api: Api, tenant: Tenant, receiver: Receiver
    ) -> None:
        make(api, receiver, uid="shop-17")
        second = make(api, receiver)
        for answer in (
            api.post("/v1/webhooks", {"url": receiver.url, "uid": "shop-17"}),
            api.patch(f"/v1/webhooks/{second['id']}", {"uid": "shop-17"}),
        ):
            assert list(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == ["uid"]
        test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
        make(test_api, receiver, uid="shop-17")
        make(other_api, receiver, uid="shop-17")

    def test_is_once_also_when_two_changes_race(self, api: Api, receiver: Receiver) -> None:
        paths = [f"/v1/webhooks/{make(api, receiver)['id']}" for _ in range(2)]
        answers = in_threads(*(partial(api.patch, path, {"uid": "shop-17"}) for path in paths))
        assert sorted(answer.status_code for answer in answers) == [200, 400]
