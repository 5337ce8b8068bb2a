"""Receivers' answers to failed attempts: shown, limited in size and number, deleted with the event's body."""

import time
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from gateway import ids
from gateway.clock import now
from gateway.outbound.client import Answer
from tenants.models import Tenant
from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks.delivery import dispatcher, retries_and_attempt_log
from webhooks.delivery.retries_and_attempt_log import AnswerAllowance
from webhooks.models import Delivery, Endpoint
from webhooks.tests.delivering import publish_one
from webhooks.tests.publishing import uuid_at

pytestmark = pytest.mark.django_db(transaction=True)


def shown_attempts(api: Api) -> list[dict[str, Any]]:
    """The attempts of the only delivery in the API's form."""
    answer = api.get(f"/v1/webhook-deliveries/{Delivery.objects.get().public_id}")
    found: list[dict[str, Any]] = answer.json()["attempt_log"]
    return found


def deliver(times: int = 1) -> None:
    for _ in range(times):
        Delivery.objects.exclude(next_attempt_at=None).update(next_attempt_at=now())
        dispatcher.run()


def test_a_failed_attempt_has_the_answer_and_a_success_has_none(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(
        status=502, text="no such table: orders", headers={"X-Trace": "t-17", "Set-Cookie": "session=s3cret"}
    )
    publish_one(tenant)
    deliver()
    receiver.answer = lambda request: web.Response(text="thank you", headers={"X-Trace": "t-18"})
    deliver()
    failed, ok = shown_attempts(api)
    assert (failed["http_status"], failed["error"]) == (502, "http_5xx")
    assert failed["response_body"] == failed["response_excerpt"] == "no such table: orders"
    assert failed["response_headers"]["X-Trace"] == "t-17"
    assert "Set-Cookie" not in failed["response_headers"]
    assert (ok["http_status"], ok["error"]) == (200, None)
    assert (ok["response_body"], ok["response_headers"], ok["response_excerpt"]) == (None, None, "")
    assert "thank you" not in str(Delivery.objects.values().get())


def test_an_excerpt_is_the_beginning_of_the_answer(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500, text="ab" * 300)
    publish_one(tenant)
    deliver()
    (attempt,) = shown_attempts(api)
    assert (attempt["response_body"], attempt["response_excerpt"]) == ("ab" * 300, "ab" * 250)


def test_a_failed_answer_more_is_stored_every_ten_seconds() -> None:
    failed, ok = Answer(500, "http_5xx", 3, b"no", None), Answer(200, None, 3, b"ok", None)
    allowance = AnswerAllowance(left=0, at=time.monotonic() - 15)
    stored = [allowance.kept(failed, "2026-11-01T00:00:00.000Z", keeps_success=True) for _ in range(3)]
    assert [each is not None for each in stored] == [True, False, False]
    assert allowance.kept(ok, "2026-11-01T00:00:00.000Z", keeps_success=True) is not None
    rested = AnswerAllowance(left=0, at=time.monotonic() - 3_600)
    many = [rested.kept(failed, "2026-11-01T00:00:00.000Z", keeps_success=False) for _ in range(30)]
    assert sum(each is not None for each in many) == 20, "a rest saves up no more than at first"


def test_where_no_answer_came_there_is_nothing_to_show(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    Endpoint.objects.update(url="http://127.0.0.1:1/hook")
    publish_one(tenant)
    deliver()
    (attempt,) = shown_attempts(api)
    assert (attempt["error"], attempt["response_body"], attempt["response_headers"]) == (
        "connection_error", None, None,
    )  # fmt: skip


def test_an_answer_is_bounded_and_always_storable(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    long = {f"X-{number}": "v" * 300 for number in range(20)}
    bodies = [b"x" * 20_000, b"\0" * 20_000, b"\xff\xfe" * 9_000, "ü".encode() * 9_000, b""]
    receiver.answer = lambda _: web.Response(
        status=500, body=bodies[len(receiver.received) - 1], headers=long
    )
    publish_one(tenant)
    for body in bodies:
        deliver()
        attempt = shown_attempts(api)[-1]
        assert len(attempt["response_body"].encode()) <= 4096
        assert len(attempt["response_body"]) >= min(len(body), 1300)
        assert sum(map(len, [*attempt["response_headers"], *attempt["response_headers"].values()])) <= 2048


def test_the_answers_of_the_three_newest_failed_attempts_are_kept(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(
        status=500, text=f"failure {request.headers['X-Service-Attempt']}"
    )
    publish_one(tenant)
    deliver(5)
    assert [attempt["response_body"] for attempt in shown_attempts(api)] == [
        None, None, "failure 3", "failure 4", "failure 5",
    ]  # fmt: skip
    assert len(Delivery.objects.get().answers or {}) == 3


def test_one_endpoint_cannot_have_answers_kept_without_end(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries_and_attempt_log, "AT_ONCE", 2)
    receiver.answer = lambda request: web.Response(status=500, text="no")
    for number in range(5):
        publish_one(tenant, f"k{number}")
    deliver()
    assert Delivery.objects.filter(attempts=1).count() == 5
    assert Delivery.objects.filter(answers__isnull=False).count() == 2


def test_a_failed_single_replay_has_the_answer(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    publish_one(tenant)
    deliver()
    receiver.answer = lambda request: web.Response(status=500, text="not again")
    replayed = api.post(f"/v1/webhook-deliveries/{Delivery.objects.get().public_id}/replay").json()
    (attempt,) = api.get(f"/v1/webhook-deliveries/{replayed['id']}").json()["attempt_log"]
    assert attempt["response_body"] == "not again"


def test_an_answer_is_shown_and_stored_no_longer_than_the_body(
    api: Api, tenant: Tenant, other_tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda request: web.Response(status=500, text="no")
    publish_one(tenant)
    deliver()
    assert shown_attempts(api)[0]["response_body"] == "no"
    long_ago = now() - timedelta(days=10)
    Delivery.objects.update(id=uuid_at(long_ago), event_id=ids.first_at(long_ago))
    Tenant.objects.filter(pk=other_tenant.pk).update(retention_days=7)
    Tenant.objects.filter(pk=tenant.pk).update(retention_days=11)
    assert retries_and_attempt_log.prune_answers() == 0, "the retention of another tenant does not count"
    assert shown_attempts(api)[0]["response_body"] == "no"
    Tenant.objects.filter(pk=tenant.pk).update(retention_days=9)
    assert shown_attempts(api)[0]["response_body"] is None
    assert retries_and_attempt_log.prune_answers() == 1
    assert Delivery.objects.get().answers is None
