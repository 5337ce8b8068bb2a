"""Filters by content: events that pass, filters that are rejected, and bodies that must not make the publishing
statement fail.
"""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from gateway.clock import now
from gateway.database.statements import run
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from webhooks import stream
from webhooks.events import filters
from webhooks.models import Delivery
from webhooks.stream import BEGINNING, Wanted
from webhooks.tests.publishing import endpoint_of, make

pytestmark = pytest.mark.django_db(transaction=True)

BUTTON = {"data.message.type": "button"}


def data(**members: Any) -> bytes:
    return orjson.dumps(members)


def delivered(endpoint_id: Any) -> set[Any]:
    return set(Delivery.objects.filter(endpoint_id=endpoint_id).values_list("event_id", flat=True))


ORDER = data(
    message={"type": "order", "from": "919812345678", "order": {"items": [{"price": 500}, {"price": 12.5}]}},
    contacts=[{"wa_id": "91981"}],
    flag=True,
    nothing=None,
)


def test_what_passes(tenant: Tenant) -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"data.message.type": {"$eq": "order"}}, True),
        ({"data.message.type": "order", "data.flag": True}, True),
        ({"data.message.type": "order", "data.flag": False}, False),
        ({"data.nothing": None}, True),
        ({"data.absent": None}, False),
        ({"type": "message.inbound"}, True),
        ({"type": {"$in": ["message.echo", "message.status"]}}, False),
        ({"data.message.from": {"$startsWith": "91"}}, True),
        ({"data.message.from": {"$startsWith": "44"}}, False),
        ({"data.message.order.items.price": {"$gt": 499, "$lte": 500}}, True),
        ({"data.message.order.items.price": {"$gt": 500}}, False),
        ({"data.message.order.items.price": {"$lt": 12}}, False),
        ({"data.message.order.items.price": {"$gte": 500}}, True),
        ({"data.message.order.items.price": {"$gte": 500.5}}, False),
        ({"data.message.order.items.price": {"$lt": 12.5}}, False),
        ({"data.message.order.items.price": {"$lte": 12.5}}, True),
        ({"data.message.order.items.price": "500"}, False),
        ({"$not": {"data.message.order.items.price": "500"}}, True),
        ({"data.contacts.wa_id": {"$in": ["1", "91981"]}}, True),
        ({"data.message.order": {"$exists": True}}, True),
        ({"data.message.text": {"$exists": False}}, True),
        ({"$not": {"data.message.text": {"$exists": False}}}, False),
        (
            {
                "$or": [
                    {"data.message.type": "text"},
                    {"$and": [{"data.flag": True}, {"type": "message.inbound"}]},
                ]
            },
            True,
        ),
        ({"data.message.type": "text", "$or": [{"type": "message.echo"}, {"data.flag": True}]}, False),
        ({"$or": [{"data.flag": True}, {"type": "message.echo"}], "data.message.type": "text"}, False),
        ({"data.message.type": "or\"der\\ $ ' ☕"}, False),
    ]
    endpoints = [endpoint_of(tenant, filter=given, filter_path=filters.compiled(given)) for given, _ in cases]
    (event,) = make(tenant, data=ORDER)
    for endpoint, (given, passes) in zip(endpoints, cases, strict=True):
        assert delivered(endpoint.id) == ({event.id} if passes else set()), given


def test_what_is_refused_says_why(api: Api, tenant: Tenant) -> None:
    endpoint = endpoint_of(tenant)
    cases: list[tuple[Any, str]] = [
        ({}, "Must be an object"),
        ([], "Must be an object"),
        ({"data.message.type": {"$eqs": "x"}}, "Did you mean $eq?"),
        ({"data.message.type": {}}, "has no condition"),
        ({"$ands": [BUTTON]}, "Did you mean $and?"),
        ({"$and": BUTTON}, "takes a list of filters"),
        ({"message.type": "x"}, "Did you mean data.message.type?"),
        ({"data.message[0]": "x"}, "is not a path"),
        ({"data.a": {"$in": "x"}}, "takes a list of values"),
        ({"data.a": {"$in": []}}, "takes a list of values"),
        ({"data.a": {"$startsWith": 1}}, "takes a string"),
        ({"data.a": {"$startsWith": ""}}, "takes a string"),
        ({"$or": []}, "takes a list of filters"),
        ({"data." + "a" * 196: 1}, "is not a path"),
        ({"data.a": {"$exists": "yes"}}, "takes true or false"),
        ({"data.a": {"$gt": [1]}}, "is compared with a string, a number"),
        ({"data.a": "nul\0"}, "is compared with a string, a number"),
        ({"data.a": {"$in": list(range(51))}}, "at most 50 comparisons"),
        ({"$not": {"$not": {"$not": {"$not": {"$not": BUTTON}}}}}, "at most 5 levels"),
        ({"data.a": "x" * 4100}, "at most 4,096 characters"),
    ]
    for given, said in cases:
        for method, path in (("PATCH", ""), ("POST", "/preview-filter")):
            answer = api.request(method, f"/v1/webhooks/{endpoint.id}{path}", {"filter": given})
            details = assert_error(answer, 400, "invalid_request")["details"]
            assert said in details["fields"]["filter"][0]
    endpoint.refresh_from_db()
    assert endpoint.filter is None
    longest = {"data.a": "x" * (filters.LONGEST - len('{"data.a": ""}'))}
    greatest: list[dict[str, Any]] = [
        longest,
        {"data.a": {"$in": list(range(50))}},
        {"$not": {"$not": {"$not": {"$not": BUTTON}}}},
        {"data." + "a" * 195: 1},
    ]
    for given in greatest:
        assert api.patch(f"/v1/webhooks/{endpoint.id}", {"filter": given}).json()["filter"] == given
    longest["data.a"] += "x"
    assert_error(api.patch(f"/v1/webhooks/{endpoint.id}", {"filter": longest}), 400, "invalid_request")
    # The parameter `filter` of an event stream may be nested up to the parser's limit.
    with pytest.raises(filters.InvalidFilterError, match="at most 5 levels"):
        filters.compiled(orjson.loads(b"[" * 1_020 + b"]" * 1_020))


@pytest.mark.parametrize(
    "body",
    [
        b'{"message":{"text":"\\u0000"}}',
        b'{"message":{"text":"\\ud800"}}',
        b'{"n":1e999999}',
        b'{"deep":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"message":{"type":"text","filler":"' + b"x" * 262_144 + b'"}}',
    ],
    ids=["nul", "surrogate", "number", "deep", "long"],
)
def test_what_cannot_be_evaluated_comes(tenant: Tenant, body: bytes) -> None:
    endpoint = endpoint_of(tenant, filter=BUTTON, filter_path=filters.compiled(BUTTON))
    (event,) = make(tenant, data=body)
    assert delivered(endpoint.id) == {event.id}


def test_a_filter_is_set_shown_previewed_and_taken_away(
    api: Api, other_api: Api, tenant: Tenant, other_tenant: Tenant
) -> None:
    endpoint, plain = endpoint_of(tenant, event_types=["message.inbound"]), endpoint_of(tenant)
    path = f"/v1/webhooks/{endpoint.id}"
    (text,) = make(tenant)
    (button,) = make(tenant, data=data(message={"type": "button"}))
    make(tenant, "message.echo", data=data(message={"type": "button"}))
    make(tenant, data=data(message={"type": "button"}), environment="test")
    make(other_tenant, data=data(message={"type": "button"}))

    shown = api.post(
        f"{path}/preview-filter", {"filter": BUTTON | {"data.mesage.id": {"$exists": False}}}
    ).json()
    assert (shown["checked"], shown["passed"]) == (2, 1)
    assert [(each["id"], each["passes"]) for each in shown["events"]] == [
        (button.public_id, True),
        (text.public_id, False),
    ]
    assert shown["hints"] == ["No example of an event has data.mesage.id. Did you mean data.message.id?"]
    assert other_api.post(f"{path}/preview-filter", {"filter": BUTTON}).status_code == 404
    assert api.get(path).json()["filter"] is None

    assert api.patch(path, {"filter": BUTTON}).json()["filter"] == BUTTON
    (second_text,) = make(tenant)
    (second_button,) = make(tenant, data=data(message={"type": "button"}))
    assert delivered(endpoint.id) == {text.id, button.id, second_button.id}
    assert {second_text.id, second_button.id} <= delivered(plain.id)

    assert api.patch(path, {"filter": None}).json()["filter"] is None
    (third_text,) = make(tenant)
    assert third_text.id in delivered(endpoint.id)


def test_a_preview_reads_a_bounded_number_of_the_newest_events(
    api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_of(tenant, event_types=["message.inbound"])
    ids = [make(tenant, kind)[0].public_id for kind in ("message.inbound",) * 3 + ("message.echo",)]

    def previewed(**limits: int) -> list[str]:
        for name, value in limits.items():
            monkeypatch.setattr(filters, name, value)
        given = {"$or": [{"$not": {"data.mesage.id": 1}}]}
        shown = api.post(f"/v1/webhooks/{endpoint.id}/preview-filter", {"filter": given}).json()
        assert [hint.partition(".")[0] for hint in shown["hints"]] == ["No example of an event has data"]
        return [each["id"] for each in shown["events"]]

    assert previewed() == ids[2::-1]
    assert previewed(PREVIEWED=2) == [ids[2], ids[1]]
    assert previewed(LOOKED_AT=2) == [ids[2]], "the newest event is of another type"


def test_an_endpoint_gets_the_messages_of_one_ad(api: Api, tenant: Tenant) -> None:
    ad = {"data.message.referral.source_id": "120200300400500600"}
    endpoint = endpoint_of(tenant)
    assert api.patch(f"/v1/webhooks/{endpoint.id}", {"filter": ad}).status_code == 200
    make(tenant)
    make(tenant, data=data(message={"type": "text", "referral": {"source_id": "120200300400500601"}}))
    (wanted,) = make(
        tenant, data=data(message={"type": "text", "referral": {"source_id": "120200300400500600"}})
    )
    assert delivered(endpoint.id) == {wanted.id}


def test_a_replay_of_missed_events_evaluates_the_filter(api: Api, tenant: Tenant) -> None:
    make(tenant)
    make(tenant, data=data(message={"type": "button"}))
    endpoint = endpoint_of(tenant, filter=BUTTON, filter_path=filters.compiled(BUTTON))
    begin, end = now() - timedelta(hours=1), now() + timedelta(hours=1)
    asked = {"from": begin.isoformat(), "to": end.isoformat(), "status": ["missed"]}
    assert api.post(f"/v1/webhooks/{endpoint.id}/replay", asked).json() == {"queued": 1}


def test_a_stream_takes_a_filter(tenant: Tenant) -> None:
    make(tenant)
    make(tenant, data=data(message={"type": "button"}))
    all_events = Wanted(tenant.id, "live", BEGINNING)
    looked = run(stream.look([all_events, all_events._replace(filter_path=filters.compiled(BUTTON))]))
    assert [[found.passes for found in page] for page in looked.pages] == [[True, True], [False, True]]
