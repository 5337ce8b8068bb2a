"""Bulkheads: how much of a process one tenant or number may occupy with waiting calls."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from copy import copy
from functools import partial
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.db import connections
from django.http import StreamingHttpResponse
from django.test import RequestFactory

from gateway.api import limits
from gateway.api.errors import ServiceUnavailable, TooManyInFlight
from gateway.api.limits import SMALL_BODY_BYTES, Bulkhead, LargeBodyMemory
from tenants.models import Tenant
from tests.fixtures import Api, assert_error, wait_until
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint


def fill(bulkhead: Bulkhead, tenant: Any, number: str | None = None) -> int:
    """Enter until rejected. Returns the number of admitted calls."""
    for count in range(1000):
        try:
            bulkhead.enter(tenant, number)
        except TooManyInFlight:
            return count
    raise AssertionError("nobody was refused")


def test_a_number_leaves_room_for_its_tenants_other_numbers() -> None:
    bulkhead, tenant = Bulkhead(per_number=3, per_tenant=5, crowded=100, in_all=100), uuid4()
    assert fill(bulkhead, tenant, "1") == 3
    assert fill(bulkhead, tenant, "2") == 2
    assert fill(bulkhead, uuid4(), "1") == 3, "another tenant's number of the same name"


def test_in_a_crowd_the_last_places_are_shared_up_to_the_end() -> None:
    bulkhead = Bulkhead(per_number=10, per_tenant=10, crowded=10, in_all=19)
    assert [fill(bulkhead, uuid4()) for _ in range(9)] == [10, 2, 2, 1, 1, 1, 1, 1, 0]


def test_a_place_that_is_freed_in_a_crowd_goes_to_who_holds_fewest() -> None:
    bulkhead, many, few = Bulkhead(per_number=9, per_tenant=4, crowded=4, in_all=6), uuid4(), uuid4()
    places = [bulkhead.enter(many) for _ in range(4)]
    bulkhead.enter(few)
    bulkhead.enter(uuid4())
    bulkhead.leave(places.pop())
    with pytest.raises(TooManyInFlight):
        bulkhead.enter(many)
    with pytest.raises(TooManyInFlight):
        bulkhead.enter(few)
    bulkhead.enter(uuid4())


@pytest.mark.parametrize("name", ["endpoints", "upstream", "large_batches"])
def test_two_tenants_whose_calls_hang_leave_places_for_a_third(name: str) -> None:
    bulkhead = copy(getattr(limits, name))
    assert not bulkhead._total
    bulkhead._waiting = Counter()
    hanging = [uuid4(), uuid4()]
    for _ in range(100):
        for tenant in hanging:
            with suppress(TooManyInFlight):
                bulkhead.enter(tenant)
    for _ in range(15):
        with bulkhead.held(uuid4()):
            pass
    with bulkhead.held(uuid4()):
        assert fill(bulkhead, hanging[0]) == 0


def test_what_leaves_makes_room_and_leaves_no_trace() -> None:
    bulkhead, tenant = Bulkhead(per_number=1, per_tenant=1, crowded=1, in_all=1), uuid4()
    for _ in range(3):
        with bulkhead.held(tenant, "1"), pytest.raises(TooManyInFlight):
            bulkhead.enter(tenant, "1")
    with pytest.raises(ValueError, match="broken"), bulkhead.held(tenant):
        raise ValueError("broken")
    assert not bulkhead._waiting
    assert not bulkhead._total


@pytest.mark.django_db(transaction=True)
def test_pings_of_a_silent_endpoint_are_refused_at_once_beyond_a_bound(
    api: Api, other_api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "endpoints", Bulkhead(per_number=1, per_tenant=2, crowded=10, in_all=10))
    silent, begun = threading.Event(), threading.Semaphore(0)

    def hang(*_: Any, **__: Any) -> Any:
        begun.release()
        silent.wait(20)
        raise TooManyInFlight

    monkeypatch.setattr(lifecycle, "verify", hang)
    rows = [
        Endpoint.objects.create(
            tenant=tenant,
            environment="live",
            url="https://hooks.example/in",
            event_types=["*"],
            secret="whsec_c2VjcmV0",
            secret_prefix="whsec_c2Vj",
        )
        for _ in range(2)
    ]
    threads = [threading.Thread(target=_closing(partial(verify, api, row))) for row in rows]
    for thread in threads:
        thread.start()
    try:
        assert begun.acquire(timeout=10)
        assert begun.acquire(timeout=10)
        answer = verify(api, rows[0])
        error = assert_error(answer, 429, "too_many_in_flight")
        assert (error["details"], answer["Retry-After"]) == ({"scope": "tenant", "limit": 2}, "1")
        assert api.get("/v1/webhooks").status_code == 200, "a read waits for nobody"
        assert_error(other_api.post(f"/v1/webhooks/{rows[0].id}/verify"), 404, "not_found")
    finally:
        silent.set()
        for thread in threads:
            thread.join(10)
    wait_until(lambda: not limits.endpoints._total, "the calls that ended are not counted out")


def verify(api: Api, endpoint: Endpoint) -> Any:
    return api.post(f"/v1/webhooks/{endpoint.id}/verify")


def _closing(work: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    return run


@pytest.mark.django_db(transaction=True)
def test_a_call_that_fails_gives_its_place_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "sends", Bulkhead(per_number=1, per_tenant=1, crowded=1, in_all=1))
    body = {"from": "1", "to": "919876543210", "type": "text", "text": {"body": "hello"}}
    for _ in range(3):
        assert_error(api.post("/v1/messages", body), 400, "invalid_request")


@pytest.mark.django_db
def test_a_streamed_answer_counts_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    bulkhead, tenant_id = Bulkhead(per_number=1, per_tenant=1, crowded=1, in_all=1), uuid4()
    monkeypatch.setattr(limits, "upstream", bulkhead)
    monkeypatch.setattr(limits, "tenant_of", lambda _: Mock(id=tenant_id))
    answer = limits.waits_for_upstream(lambda *_, **__: StreamingHttpResponse([b"a", b"b"]))(
        None, Mock(), node="1"
    )
    assert b"".join(answer) == b"ab"
    with pytest.raises(TooManyInFlight):
        bulkhead.enter(tenant_id)
    answer.close()
    bulkhead.enter(tenant_id)


WAITING = {
    "upstream": {
        "POST /v1/media",
        "GET /v1/media/{media_id}",
        "DELETE /v1/media/{media_id}",
        "POST /v1/templates",
        "POST /v1/templates/sync",
        "POST /v1/templates/media-handle",
        "GET /v1/templates/library",
        "GET /v1/templates/{template_id}",
        "POST /v1/templates/{template_id}",
        "DELETE /v1/templates/{template_id}",
        "POST /v1/numbers/embedded-signup",
        "POST /v1/numbers/connect",
        "POST /v1/numbers/migrate",
        "GET /v1/numbers/{phone_number_id}",
        "DELETE /v1/numbers/{phone_number_id}",
        "GET /v1/numbers/{phone_number_id}/health",
        "DELETE /v1/accounts/{waba_id}",
        "POST /v1/numbers/{phone_number_id}/register",
        "POST /v1/numbers/{phone_number_id}/deregister",
        "POST /v1/numbers/{phone_number_id}/two-step",
        "POST /v1/numbers/{phone_number_id}/request-code",
        "POST /v1/numbers/{phone_number_id}/verify-code",
        "POST /v1/numbers/{phone_number_id}/subscribe",
        "GET /v1/numbers/{phone_number_id}/business-profile",
        "POST /v1/numbers/{phone_number_id}/business-profile",
        "POST /v1/billing/mandate",
        "POST /v1/billing/invoices/{invoice_id}/pay",
    },
    "endpoints": {
        "POST /v1/webhooks",
        "PATCH /v1/webhooks/{endpoint_id}",
        "POST /v1/webhooks/{endpoint_id}/verify",
        "POST /v1/webhooks/{endpoint_id}/test",
        "POST /v1/webhook-deliveries/{delivery_id}/replay",
    },
}
SENDS = ["/v1/messages", "/v1/messages/read", "/v25.0/12345/messages", "/12345/marketing_messages"]
FORMS = {"POST /v1/media", "POST /v1/templates/media-handle"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("bulkhead", "route"), [(name, route) for name, many in WAITING.items() for route in many]
)
def test_each_route_that_waits_for_others_is_bounded(
    api: Api, bulkhead: str, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, bulkhead, Bulkhead(per_number=0, per_tenant=0, crowded=0, in_all=0))
    monkeypatch.setattr("django.conf.settings.BILLING_ENABLED", True)
    method, _, path = route.partition(" ")
    for name in ("endpoint_id", "invoice_id"):
        path = path.replace(f"{{{name}}}", str(uuid4()))
    path = path.replace("{delivery_id}", "dlv_01M7YEEJAWES2SRDJ545XNFWAW").replace("{media_id}", "1")
    path = path.replace("{template_id}", "1").replace("{phone_number_id}", "1").replace("{waba_id}", "1")
    body = None if method == "GET" else {"from": "1"}
    ask = api.request if route not in FORMS else lambda _, *of: api.client.post(*of, headers=api.headers)
    assert_error(ask(method, path, body), 429, "too_many_in_flight")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/numbers/12345/health", None),
        ("GET", "/v1/media/1?from=12345", None),
        ("POST", "/v1/templates", {"from": "12345"}),
        ("GET", "/v25.0/12345/whatsapp_business_profile", None),
        ("POST", "/12345/register", {}),
    ],
)
def test_a_call_counts_for_the_number_that_it_names(
    api: Api, method: str, path: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "upstream", Bulkhead(per_number=0, per_tenant=9, crowded=9, in_all=9))
    answer = api.request(method, path, body)
    assert answer.status_code == 429, answer.content
    if path.startswith("/v1/"):
        error = assert_error(answer, 429, "too_many_in_flight")
        assert error["details"] == {"scope": "number", "limit": 0}


def test_large_bodies_may_fill_their_memory_to_the_last_byte() -> None:
    memory = LargeBodyMemory(10)
    memory.take(4)
    memory.take(6)
    for size in (1, 10):
        with pytest.raises(ServiceUnavailable):
            memory.take(size)
    memory.release(4)
    memory.take(4)
    for length, is_taken in ((0, True), (SMALL_BODY_BYTES, True), (SMALL_BODY_BYTES + 1, False)):
        request = RequestFactory().post("/", b"", "application/json", CONTENT_LENGTH=str(length))
        with nullcontext() if is_taken else pytest.raises(ServiceUnavailable), memory.held_for(request):
            pass
    memory.release(10)
    memory.take(10)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", SENDS)
def test_each_send_is_bounded(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "sends", Bulkhead(per_number=0, per_tenant=0, crowded=0, in_all=0))
    body = {"messaging_product": "whatsapp", "to": "919876543210", "type": "text"}
    if path.startswith("/v1/"):
        body["from"] = "12345"
    answer = api.post(path, body)
    assert answer.status_code == 429, answer.content
