"""Replays: one delivery at once, or an endpoint's deliveries of a range in the background, each exactly once."""

import asyncio
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from aiohttp import web
from cryptography.fernet import Fernet
from django.db import connection, transaction
from standardwebhooks.webhooks import Webhook

from gateway import ids
from gateway.clock import isoformat, now
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from tests.receiver import Received, Receiver
from webhooks import replay, tasks
from webhooks.delivery import dispatcher
from webhooks.endpoints import notices
from webhooks.events.retention import expunge
from webhooks.models import Delivery, Endpoint, Event, ReplayChunk
from webhooks.tests.delivering import publish_one

pytestmark = pytest.mark.django_db(transaction=True)


def dead(tenant: Tenant, key: str, **members: Any) -> Delivery:
    event_id = publish_one(tenant, key, raw=b"{}", **members)
    Delivery.objects.filter(event_id=event_id).update(status="dead", next_attempt_at=None, attempts=12)
    return Delivery.objects.get(event_id=event_id)


def ask(api: Api, endpoint: dict[str, Any], **body: Any) -> Any:
    hour = timedelta(hours=1)
    body = {"from": isoformat(now() - hour), "to": isoformat(now() + hour), **body}
    return api.post(f"/v1/webhooks/{endpoint['id']}/replay", body)


def release_all() -> None:
    ReplayChunk.objects.update(due_at=now())
    while replay.release_due():
        ReplayChunk.objects.update(due_at=now())


class TestOneDelivery:
    def test_is_sent_once_more_with_the_secrets_of_now(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")
        rotated = api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret", {"overlap_hours": 0}).json()
        answer = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay")
        assert answer.status_code == 200, answer.content
        body = answer.json()
        assert list(body) == [
            "id", "status", "attempts", "last_http_status", "last_response_ms", "is_replay", "replay_of",
        ]  # fmt: skip
        (got,) = receiver.wait_for(1)
        Webhook(rotated["secret"]).verify(got.body, {k.lower(): v for k, v in got.headers.items()})
        assert got.headers["webhook-id"] == ids.encode(ids.EVENT, source.event_id)
        assert got.headers["X-Service-Delivery"] == body["id"] != source.public_id
        assert (body["status"], body["attempts"], body["last_http_status"]) == ("delivered", 1, 200)
        assert (body["is_replay"], body["replay_of"]) == (True, source.public_id)
        source.refresh_from_db()
        assert source.status == "dead", "the original keeps its own story"

    def test_a_failed_one_is_not_retried(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")
        found: list[bool] = []

        def is_open() -> bool:
            try:
                return Delivery.objects.filter(status__in=Delivery.OPEN).exists()
            finally:
                connection.close()

        async def fail(_: Received) -> web.Response:
            found.append(await asyncio.to_thread(is_open))
            return web.Response(status=500)

        receiver.answer = fail
        body = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay").json()
        assert (body["status"], body["attempts"], body["last_http_status"]) == ("dead", 1, 500)
        row = Delivery.objects.get(is_replay=True)
        assert (row.last_error, row.next_attempt_at, len(row.attempt_log)) == ("http_5xx", None, 1)
        assert found == [False], "if the process had died meanwhile, a dispatcher would have sent it again"
        assert notices.report_exhausted() == 0, "who sent it again has the answer"

    def test_a_410_of_a_former_url_does_not_disable_the_endpoint(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")

        def move() -> None:
            answer = api.patch(f"/v1/webhooks/{endpoint['id']}", {"url": receiver.url + "/new"})
            assert answer.status_code == 200, answer.content
            connection.close()

        async def gone(_: Received) -> web.Response:
            await asyncio.to_thread(move)
            return web.Response(status=410)

        receiver.answer = gone
        body = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay").json()
        assert (body["status"], body["last_http_status"]) == ("dead", 410), "it is a single attempt"
        assert Endpoint.objects.get().status == "active"

    def test_closes_an_open_circuit_when_it_arrives_and_never_lengthens_it(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")
        until = now() + timedelta(minutes=1)
        Endpoint.objects.update(circuit_open_until=until, circuit_opened=2, circuit_generation=7)
        receiver.answer = lambda request: web.Response(status=500)
        assert api.post(f"/v1/webhook-deliveries/{source.public_id}/replay").json()["status"] == "dead"
        assert Endpoint.objects.get().circuit_open_until == until
        receiver.answer = lambda request: web.Response()
        assert api.post(f"/v1/webhook-deliveries/{source.public_id}/replay").json()["status"] == "delivered"
        assert Endpoint.objects.get().circuit_open_until is None

    def test_a_body_past_retention_cannot_be_replayed(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM event_payloads")
        answer = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay")
        assert assert_error(answer, 404, "not_found")["details"] == {"reason": "payload_expired"}
        assert Delivery.objects.count() == 1
        assert receiver.received == []

    def test_of_a_deleted_endpoint_is_not_found(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        source = dead(tenant, "k1")
        api.delete(f"/v1/webhooks/{endpoint['id']}")
        answer = api.post(f"/v1/webhook-deliveries/{source.public_id}/replay")
        assert assert_error(answer, 404, "not_found")["details"] == {"reason": "endpoint_deleted"}

    def test_while_the_first_attempt_is_in_flight_is_a_conflict(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        from webhooks.delivery.caps import Room
        from webhooks.delivery.claim_statements import claim

        publish_one(tenant)
        (claimed,) = claim(Room(10, 10, {}, {}))
        path = f"/v1/webhook-deliveries/{ids.encode(ids.DELIVERY, claimed.id)}/replay"
        assert_error(api.post(path), 409, "conflict")
        Delivery.objects.update(next_attempt_at=now(), leased_until=now())
        assert api.post(path).status_code == 200, "one that only waits can be replayed"

    def test_with_a_secret_that_cannot_be_read_is_a_conflict_and_sends_nothing_later(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver, settings: Any
    ) -> None:
        source = dead(tenant, "k1")
        path = f"/v1/webhook-deliveries/{source.public_id}/replay"
        settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
        assert_error(api.post(path), 409, "conflict")
        assert not Delivery.objects.filter(is_replay=True).exists()
        assert api.post(f"/v1/webhooks/{endpoint['id']}/rotate-secret").status_code == 200
        assert api.post(path).json()["status"] == "delivered"
        assert [row.status for row in Delivery.objects.filter(is_replay=True)] == ["delivered"]
        assert len(receiver.received) == 1

    def test_to_an_endpoint_that_is_not_active_is_a_conflict(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")
        for status in ("paused", "disabled", "pending"):
            Endpoint.objects.update(status=status)
            assert_error(api.post(f"/v1/webhook-deliveries/{source.public_id}/replay"), 409, "conflict")
            assert_error(ask(api, endpoint), 409, "conflict")
        assert receiver.received == []

    def test_a_foreign_delivery_is_answered_like_none(
        self, other_api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        foreign, none = (
            assert_error(other_api.post(f"/v1/webhook-deliveries/{public_id}/replay"), 404, "not_found")
            for public_id in (dead(tenant, "k1").public_id, ids.encode(ids.DELIVERY, ids.uuid7()))
        )
        assert foreign == none, "nothing tells a stranger that there is one"


class TestAnEndpoint:
    def test_failed_and_dead_are_replayed_once_each_in_their_order(
        self,
        api: Api,
        tenant: Tenant,
        endpoint: dict[str, Any],
        receiver: Receiver,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(replay, "PER_SECOND", 2)
        sources = [dead(tenant, f"k{number}") for number in range(5)]
        publish_one(tenant, "delivered")
        dispatcher.run()
        receiver.received.clear()
        answer = ask(api, endpoint)
        assert (answer.status_code, answer.json()) == (202, {"queued": 5})
        assert [len(chunk.source_ids) for chunk in ReplayChunk.objects.order_by("id")] == [2, 2, 1]
        release_all()
        dispatcher.run()
        assert len(receiver.wait_for(5)) == 5
        replays = Delivery.objects.filter(is_replay=True).order_by("id")
        assert [row.replay_of for row in replays] == [source.id for source in sources]
        assert {row.status for row in replays} == {"delivered"}

    def test_covers_the_statuses_of_the_call(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        source = dead(tenant, "k1")
        for status in ("pending", "failed", "delivered"):
            event_id = dead(tenant, status).event_id
            Delivery.objects.filter(event_id=event_id).update(status=status)
        for statuses, count in (
            ({}, 2),
            ({"status": ["failed"]}, 1),
            ({"status": ["pending"]}, 1),
            ({"status": ["delivered", "dead"]}, 2),
            ({"status": ["missed"]}, 0),
        ):
            assert ask(api, endpoint, preview=True, **statuses).json()["count"] == count, statuses
        assert ask(api, endpoint, status=["dead"]).json() == {"queued": 1}
        Delivery.objects.update(status="delivered")
        dead(tenant, "later")
        release_all()
        assert [row.replay_of for row in Delivery.objects.filter(is_replay=True)] == [source.id]

    def test_filters(self, api: Api, tenant: Tenant, endpoint: dict[str, Any]) -> None:
        dead(tenant, "k1")
        dead(tenant, "k2", type="message.status")
        assert ask(api, endpoint, event_types=["message.status"]).json() == {"queued": 1}
        assert ask(api, endpoint, event_types=["*"]).json() == {"queued": 1}, "the other one"
        assert ask(api, endpoint, status=["delivered"]).json() == {"queued": 0}
        ReplayChunk.objects.all().delete()
        assert ask(api, endpoint, event_types=None, preview=True).json()["count"] == 2
        past = isoformat(now() - timedelta(minutes=30))
        assert ask(api, endpoint, to=past).json() == {"queued": 0}
        Delivery.objects.all().delete()
        for kinds, count in (["message.inbound"], 1), (["message.status", "message.inbound"], 2), (["*"], 2):
            answer = ask(api, endpoint, status=["missed"], event_types=kinds, preview=True)
            assert answer.json()["count"] == count, "of missed events too"

    def test_a_replay_is_replayed_by_its_original_alone(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        dead(tenant, "k1")
        ask(api, endpoint)
        release_all()
        Delivery.objects.filter(is_replay=True).update(status="dead")
        assert ask(api, endpoint).json() == {"queued": 1}

    def test_missed_events_get_their_first_delivery(
        self, api: Api, tenant: Tenant, other_tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        publish_one(tenant, "delivered")
        dispatcher.run()
        api.patch(f"/v1/webhooks/{endpoint['id']}", {"status": "paused"})
        missed = publish_one(tenant, "missed")
        publish_one(other_tenant, "foreign")
        api.patch(f"/v1/webhooks/{endpoint['id']}", {"status": "active"})
        assert ask(api, endpoint, status=["missed"]).json() == {"queued": 1}
        release_all()
        dispatcher.run()
        got = receiver.wait_for(2)[-1]
        assert got.headers["webhook-id"] == ids.encode(ids.EVENT, missed)
        assert ask(api, endpoint, status=["missed"]).json() == {"queued": 0}

    @pytest.mark.parametrize("is_preview", [False, True])
    @pytest.mark.parametrize("status", ["missed", "dead"])
    def test_nothing_past_retention_or_erased_is_queued_or_counted(
        self,
        api: Api,
        tenant: Tenant,
        endpoint: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
        status: str,
        is_preview: bool,
    ) -> None:
        """The event's body is deleted, so its delivery could only die."""
        dead(tenant, "k1")
        if status == "missed":
            Delivery.objects.all().delete()
        asked = {"status": [status], "preview": True} if is_preview else {"status": [status]}
        days = tenant.retention_days
        monkeypatch.setattr(replay, "now", lambda: now() + timedelta(days=days, hours=2))
        assert ask(api, endpoint, **asked).json()["count" if is_preview else "queued"] == 0
        monkeypatch.setattr(replay, "now", lambda: now() + timedelta(days=days, minutes=-5))
        assert ask(api, endpoint, **asked).json()["count" if is_preview else "queued"] == 1
        ReplayChunk.objects.all().delete()
        expunge(Event.objects.all())
        assert ask(api, endpoint, **asked).json()["count" if is_preview else "queued"] == 0

    def test_a_pause_holds_what_was_queued_before_it(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        dead(tenant, "k1")
        assert ask(api, endpoint).json() == {"queued": 1}
        assert api.patch(f"/v1/webhooks/{endpoint['id']}", {"status": "paused"}).status_code == 200
        release_all()
        assert not Delivery.objects.filter(is_replay=True).exists()
        assert api.patch(f"/v1/webhooks/{endpoint['id']}", {"status": "active"}).status_code == 200
        release_all()
        assert Delivery.objects.filter(is_replay=True).count() == 1

    @pytest.mark.parametrize(("seconds", "status"), [(0, 202), (1, 400)])
    def test_a_range_is_as_long_as_the_retention(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], seconds: int, status: int
    ) -> None:
        end = now()
        begin = end - timedelta(days=tenant.retention_days, seconds=seconds)
        assert ask(api, endpoint, **{"from": isoformat(begin), "to": isoformat(end)}).status_code == status

    def test_bad_input_is_named(self, api: Api, endpoint: dict[str, Any]) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"from": "2026-11-02T00:00:00Z", "to": "2026-11-01T00:00:00Z"}, "from"),
            ({"from": "2025-01-01T00:00:00Z"}, "to"),
            ({"from": "yesterday"}, "from"),
            ({"to": None}, "to"),
            ({"to": "2026-11-02"}, "to"),
            ({"status": ["nonsense"]}, "status"),
            ({"status": []}, "status"),
            ({"event_types": ["nonsense"]}, "event_types"),
        ]
        for change, field in cases:
            error = assert_error(ask(api, endpoint, **change), 400, "invalid_request")
            assert [name.partition(".")[0] for name in error["details"]["fields"]] == [field], change

    def test_a_crash_in_the_middle_neither_loses_nor_doubles(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):
            dead(tenant, f"k{number}")
        ask(api, endpoint)

        def crash(chunk: ReplayChunk) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ReplayChunk, "delete", crash)
            with pytest.raises(KeyboardInterrupt):
                replay.release_due()
        assert Delivery.objects.filter(is_replay=True).count() == 0
        release_all()
        assert Delivery.objects.filter(is_replay=True).count() == 3

    def test_waits_behind_what_the_endpoint_has_open_and_for_its_pace(
        self,
        api: Api,
        tenant: Tenant,
        endpoint: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(replay, "PER_SECOND", 1)
        dead(tenant, "k1")
        dead(tenant, "k2")
        ask(api, endpoint)
        assert replay.release_due() == 1
        assert replay.release_due() == 0, "the second chunk is a second later"
        ReplayChunk.objects.update(due_at=now())
        monkeypatch.setattr(replay, "MOST_WAITING", 1)
        assert replay.release_due() == 0, "one delivery is open already"
        Delivery.objects.filter(is_replay=True).update(status="failed")
        assert replay.release_due() == 0, "it waits for a retry"
        Delivery.objects.filter(is_replay=True).update(status="delivered")
        publish_one(tenant, "of this hour")
        waiting = Delivery.objects.filter(status="pending")
        in_an_hour = now() + timedelta(hours=1)
        waiting.update(next_attempt_at=in_an_hour, leased_until=in_an_hour)
        assert replay.release_due() == 0, "it is in flight"
        waiting.update(leased_until=None)
        assert replay.release_due() == 1, "what has ended, or is not due yet, is not open"

    def test_replays_of_an_ordered_endpoint_wait_for_earlier_ones_of_their_customer(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replay, "PER_SECOND", 2)
        Endpoint.objects.update(ordered=True)
        for key, wa_id in (("a1", "91"), ("b1", "92"), ("a2", "91")):
            dead(tenant, key, wa_id=wa_id)
        ask(api, endpoint)
        ReplayChunk.objects.update(due_at=now())
        assert [replay.release_due(), replay.release_due()] == [2, 1], "the older chunk goes first"
        keys = list(
            Delivery.objects.filter(is_replay=True).order_by("id").values_list("customer_key", flat=True)
        )
        assert (keys[0] is not None, keys[0] == keys[2], keys[0] == keys[1]) == (True, True, False)

    def test_two_releases_of_an_endpoint_never_meet(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any]
    ) -> None:
        """While another process holds the endpoint's row for a release, nothing else is released."""
        dead(tenant, "k1")
        ask(api, endpoint)
        released: list[int] = []

        def release() -> None:
            try:
                released.append(replay.release_due())
            finally:
                connection.close()

        with transaction.atomic():
            Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint["id"])
            other = threading.Thread(target=release)
            other.start()
            other.join(20)
        assert released == [0]
        assert replay.release_due() == 1

    def test_a_release_queues_the_next_once_while_chunks_are_left(
        self,
        api: Api,
        tenant: Tenant,
        endpoint: dict[str, Any],
        empty_valkey: redis.Redis,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        queued: list[float | None] = []
        monkeypatch.setattr(
            replay, "enqueue", lambda task, *, expires, countdown=None: queued.append(countdown)
        )
        monkeypatch.setattr(replay, "PER_SECOND", 1)
        tasks.release_replays.run()
        assert queued == [], "nothing is replayed"
        dead(tenant, "k1")
        dead(tenant, "k2")
        ask(api, endpoint)
        assert queued == [None], "the first release is queued with the replay"
        tasks.release_replays.run()
        tasks.release_replays.run()
        assert queued == [None, replay.RELEASE_SECONDS], "beat and another worker queue no second one"
        empty_valkey.delete("replays:next")
        release_all()
        tasks.release_replays.run()
        assert queued == [None, replay.RELEASE_SECONDS], "no chunk is left"

    def test_without_valkey_a_release_leaves_the_next_one_to_beat(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away() -> Any:
            raise redis.exceptions.ConnectionError

        monkeypatch.setattr(replay, "PER_SECOND", 1)
        monkeypatch.setattr(replay, "valkey", away)
        dead(tenant, "k1")
        dead(tenant, "k2")
        ask(api, endpoint)
        for released in (1, 2):
            ReplayChunk.objects.update(due_at=now())
            tasks.release_replays.run()
            assert Delivery.objects.filter(is_replay=True).count() == released

    def test_claims_prefer_what_is_fresh(self, api: Api, tenant: Tenant, endpoint: dict[str, Any]) -> None:
        from webhooks.delivery.caps import Room
        from webhooks.delivery.claim_statements import claim

        dead(tenant, "k1")
        ask(api, endpoint)
        release_all()
        Delivery.objects.filter(is_replay=True).update(next_attempt_at=now() - timedelta(minutes=1))
        fresh: UUID = publish_one(tenant, "fresh")
        (first,) = claim(Room(1, 1, {}, {}))
        assert first.event_id == fresh
        assert len(claim(Room(1, 1, {}, {}))) == 1


class TestRepeatedRequests:
    def test_what_is_queued_or_open_is_not_queued_again(
        self, api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        for n in range(3):
            dead(tenant, f"k{n}")
        assert ask(api, endpoint).json() == {"queued": 3}
        assert ask(api, endpoint).json() == {"queued": 0}, "they wait in chunks"
        release_all()
        assert ask(api, endpoint).json() == {"queued": 0}, "their replays are open"
        Delivery.objects.filter(is_replay=True).update(status="failed")
        assert ask(api, endpoint).json() == {"queued": 0}, "their replays wait for a retry"
        dispatcher.run()
        assert len(receiver.wait_for(3)) == 3
        dead(tenant, "k3")
        assert ask(api, endpoint).json() == {"queued": 4}, "what was replayed before may be asked for again"

    def test_missed_events_are_queued_once(self, api: Api, tenant: Tenant, endpoint: dict[str, Any]) -> None:
        Endpoint.objects.update(status="paused")
        publish_one(tenant)
        Endpoint.objects.update(status="active")
        assert ask(api, endpoint, status=["missed"]).json() == {"queued": 1}
        assert ask(api, endpoint, status=["missed"]).json() == {"queued": 0}

    def test_one_request_of_a_tenant_at_a_time(
        self, api: Api, other_api: Api, tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
    ) -> None:
        dead(tenant, "k1")
        others = other_api.post("/v1/webhooks", {"url": receiver.url}).json()
        answers: list[Any] = []

        def race() -> None:
            answers.extend([ask(api, endpoint), ask(other_api, others)])
            connection.close()

        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(replay._ALONE, [tenant.id])
            thread = threading.Thread(target=race)
            thread.start()
            thread.join()
        assert_error(answers[0], 429, "too_many_in_flight")
        assert answers[0]["Retry-After"] == "1"
        assert answers[1].status_code == 202, "another tenant is not held up"
        assert ask(api, endpoint).json() == {"queued": 1}


def test_a_preview_counts_and_queues_nothing(
    api: Api, tenant: Tenant, endpoint: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "PER_SECOND", 2)
    first, *_ = [dead(tenant, f"k{n}") for n in range(5)]
    answer = ask(api, endpoint, preview=True)
    assert answer.status_code == 200
    assert answer.json() == {"count": 5, "oldest": isoformat(first.created_at), "expected_seconds": 3}
    assert not ReplayChunk.objects.exists()
    assert ask(api, endpoint, preview=True, status=["delivered"]).json() == {
        "count": 0,
        "oldest": None,
        "expected_seconds": 0,
    }


def test_the_oldest_of_a_preview_is_the_oldest_of_all_kinds(
    api: Api, tenant: Tenant, endpoint: dict[str, Any]
) -> None:
    first = dead(tenant, "k1")
    Endpoint.objects.update(status="paused")
    publish_one(tenant, "k2")
    Endpoint.objects.update(status="active")
    found = ask(api, endpoint, preview=True, status=["dead", "missed"]).json()
    assert (found["count"], found["oldest"]) == (2, isoformat(first.created_at))


def test_pending_deliveries_can_be_replayed(api: Api, tenant: Tenant, endpoint: dict[str, Any]) -> None:
    publish_one(tenant)
    assert ask(api, endpoint).json() == {"queued": 0}
    assert ask(api, endpoint, status=["pending"]).json() == {"queued": 1}
