"""The limits on what a tenant can create (docs/limits.md) hold when two calls race for the last place."""

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from gateway.api.errors import ServiceError
from gateway.clock import now
from messaging.batches import lifecycle as batches
from messaging.batches import scheduled_messages
from messaging.models import Batch, ScheduledMessage
from messaging.sending.flow import SendRequest
from messaging.tests.incoming import number_of
from phone_numbers import leaving
from phone_numbers.hosted_connect import sessions
from phone_numbers.models import ConnectSession, PhoneNumber
from tenants import audit, audit_labels, platform_apps, tenant_settings
from tenants.audit import Actor
from tenants.connected_apps import connections
from tenants.credentials import api_keys
from tenants.models import ApiKey, AppConnection, AuditEntry, PlatformApp, Tenant, User
from tenants.tests.connected_apps import client_of, code_of, member_of
from tests.browsers import browser_of, logged_in, text
from tests.fixtures import Api, assert_error
from tests.scripted_graph import ScriptedGraph
from webhooks.models import Endpoint
from webhooks.tests.publishing import endpoint_of

pytestmark = pytest.mark.django_db(transaction=True)

BATCH = (
    b'{"from":"200300400500600","messages":[{"to":"+919812345678","type":"text","text":{"body":"Hello"}}]}'
)


def at_once(call: Callable[[], object]) -> list[int]:
    """Run a call twice at the same time. Returns the sorted statuses: 200, or the status of a rejection.

    The calls wait for each other before they insert. If a lock blocks one call, the other continues after 0.5 s.
    """
    start, meeting = threading.Barrier(2), threading.Barrier(2)

    def meet(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("INSERT"):
            with suppress(threading.BrokenBarrierError):
                meeting.wait(timeout=0.5)
        return execute(statement, *rest)

    def run(_: int) -> int:
        try:
            start.wait(timeout=10)
            with connection.execute_wrapper(meet):
                call()
        except ServiceError as error:
            return error.status
        finally:
            connection.close()
        return 200

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(run, range(2)))


@pytest.fixture
def number(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> PhoneNumber:
    monkeypatch.setattr(batches, "wake", lambda: None)
    number = number_of(tenant, waba_id="100200300400500", phone_number_id="200300400500600")
    PhoneNumber.objects.update(connection_state="connected")
    return number


class TestKeys:
    def test_two_at_the_limit_make_one(self, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api_keys, "MOST_KEYS", 2)
        self.make(tenant)
        assert at_once(lambda: self.make(tenant)) == [200, 409]
        assert ApiKey.objects.count() == 2

    def test_a_platforms_keys_have_it_too(
        self, platform_app: PlatformApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api_keys, "MOST_KEYS", 1)
        assert at_once(lambda: api_keys.create(name="k", environment="live", app=platform_app)) == [200, 409]

    def test_only_working_keys_of_the_environment_count(
        self, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api_keys, "MOST_KEYS", 1)
        first = self.make(tenant)
        self.make(tenant, environment="test")
        error = assert_error(Api(first.key).post("/v1/api-keys", {"name": "second"}), 409, "conflict")
        assert error["details"] == {"limit": 1}
        keys = ApiKey.objects.for_tenant(tenant.id)
        rotated = api_keys.rotate(keys=keys, key_id=first.row.id)
        for key in (first, rotated):
            api_keys.revoke(keys=keys, key_id=key.row.id)
        self.make(tenant)

    def make(self, tenant: Tenant, environment: str = "live") -> api_keys.NewKey:
        return api_keys.create(name="k", environment=environment, tenant=tenant)


class TestConnectSessions:
    def test_two_at_the_limit_make_one(self, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sessions, "MOST_OPEN", 2)
        self.make(tenant)
        assert at_once(lambda: self.make(tenant)) == [200, 429]
        assert ConnectSession.objects.count() == 2

    def test_only_open_ones_count_and_the_answer_says_when_there_is_room(
        self, tenant: Tenant, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "MOST_OPEN", 1)
        self.make(tenant, environment="test")
        first = self.make(tenant)
        answer = api.post("/v1/connect-sessions", {"return_url": "https://shop.example/done"})
        assert assert_error(answer, 429, "rate_limited")["details"] == {"limit": 1}
        assert 3_500 < int(answer["Retry-After"]) <= 3_600
        ConnectSession.objects.filter(pk=first.pk).update(expires_at=now())
        self.make(tenant)

    def make(self, tenant: Tenant, environment: str = "live") -> ConnectSession:
        return sessions.create(
            tenant_id=tenant.id, environment=environment, return_url="https://shop.example/done"
        )


class TestBatches:
    @pytest.mark.parametrize(("limit", "most"), [("MOST_WAITING_ITEMS", 2), ("MOST_WAITING_BYTES", 200)])
    def test_two_at_the_limit_make_one(
        self, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
    ) -> None:
        monkeypatch.setattr(batches, limit, most)
        self.make(tenant)
        assert at_once(lambda: self.make(tenant)) == [200, 429]
        assert Batch.objects.count() == 2

    @pytest.mark.parametrize("outcome", ["accepted", "failed"])
    def test_what_was_sent_makes_room(
        self, tenant: Tenant, api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch, outcome: str
    ) -> None:
        monkeypatch.setattr(batches, "MOST_WAITING_ITEMS", 1)
        self.make(tenant)
        answer = api.request("POST", "/v1/messages/batch", BATCH)
        assert assert_error(answer, 429, "rate_limited")["details"]["limit"] == 1
        assert answer["Retry-After"] == "60"
        Batch.objects.update(**{outcome: 1})
        self.make(tenant)
        Batch.objects.update(completed_at=now())
        assert batches.waiting(tenant_id=tenant.id, environment="live") == (0, 0)

    def test_what_is_skipped_does_not_wait(
        self, tenant: Tenant, api: Api, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A restarted job repeats its messages while the first ones are still being sent."""
        monkeypatch.setattr(batches, "MOST_WAITING_ITEMS", 2)
        for reference, status in (("a", 202), ("a", 202), ("b", 202), ("c", 429)):
            body = json.loads(BATCH)
            body["messages"][0]["message_ref"] = reference
            assert api.post("/v1/messages/batch", body).status_code == status, reference
        assert batches.waiting(tenant_id=tenant.id, environment="live").items == 2
        cancelled, *_ = Batch.objects.order_by("id")
        # One item is being sent, so the batch stays open.
        cancelled.items.create(idx=1, body=b"{}", claimed_by=cancelled.id)
        Batch.objects.filter(pk=cancelled.pk).update(total=2)
        batches.cancel(cancelled)
        assert batches.waiting(tenant_id=tenant.id, environment="live").items == 2

    def make(self, tenant: Tenant) -> None:
        batches.create(tenant_id=tenant.id, environment="live", raw=BATCH)


class TestScheduledMessages:
    def test_two_at_the_limit_make_one(
        self, tenant: Tenant, number: PhoneNumber, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scheduled_messages, "MOST_SCHEDULED", 2)
        self.make(tenant)
        assert at_once(lambda: self.make(tenant)) == [200, 429]
        assert ScheduledMessage.objects.count() == 2

    def make(self, tenant: Tenant) -> None:
        body = {**json.loads(BATCH)["messages"][0], "from": "200300400500600"}
        body["send_at"] = (now() + timedelta(hours=1)).isoformat()
        scheduled_messages.create(
            SendRequest(
                tenant_id=tenant.id,
                environment="live",
                path="/v1/messages/scheduled",
                raw=json.dumps(body).encode(),
                body=body,
                idempotency_key=None,
                request_id=None,
            )
        )


class TestSandboxTenants:
    def test_two_at_the_limit_make_one(
        self, platform_app: PlatformApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform_apps, "MOST_SANDBOX_TENANTS", 2)
        another = PlatformApp.objects.create(name="Another platform")
        for app in (another, another, platform_app):
            self.make(app, sandbox=True)
        self.make(platform_app, sandbox=False)
        assert at_once(lambda: self.make(platform_app, sandbox=True)) == [200, 409]
        assert Tenant.objects.filter(sandbox=True, app=platform_app).count() == 2
        self.make(platform_app, sandbox=False)
        leaving.close(tenant_id=Tenant.objects.filter(sandbox=True, app=platform_app).latest("id").id)
        self.make(platform_app, sandbox=True)

    def test_a_test_platform_key_gets_the_same_error(
        self, platform_app: PlatformApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform_apps, "MOST_SANDBOX_TENANTS", 0)
        api = Api(api_keys.create(name="k", environment="test", app=platform_app).key)
        error = assert_error(api.post("/v1/tenants", {"name": "Try"}), 409, "conflict")
        assert error["details"] == {"limit": 0}

    def make(self, app: PlatformApp, *, sandbox: bool) -> None:
        platform_apps.create_for_app(
            app_id=app.id, name="Try", external_ref=None, retention_days=90, sandbox=sandbox
        )


class TestAuditEntries:
    @pytest.fixture(autouse=True)
    def _few_a_day(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit, "MOST_A_DAY", 3)

    def test_two_at_the_limit_write_at_most_one(self, tenant: Tenant, key: api_keys.NewKey) -> None:
        for _ in range(2 - AuditEntry.objects.count()):
            self.change(tenant, acting_key_id=key.row.id)
        assert at_once(lambda: self.record(tenant, acting_key_id=key.row.id)) == [200, 429]
        assert AuditEntry.objects.filter(tenant_id=tenant.id).count() == 3

    def test_the_next_change_of_a_key_or_member_is_refused_and_nothing_is_changed(
        self, tenant: Tenant, api: Api, key: api_keys.NewKey
    ) -> None:
        for days in (30, 180, 365, 30)[: 3 - AuditEntry.objects.count()]:
            assert api.patch("/v1/tenant", {"retention_days": days}).status_code == 200
        tenant.refresh_from_db()
        answer = api.patch("/v1/tenant", {"name": "One too many"})
        assert assert_error(answer, 429, "rate_limited")["details"] == {"limit": 3}
        assert 86_000 < int(answer["Retry-After"]) <= 86_400
        owner = User.objects.create_user("owner@traders.example", "pw", tenant=tenant)
        with pytest.raises(ServiceError):
            self.change(tenant, actor_user_id=owner.pk)
        tenant.refresh_from_db()
        assert tenant.name != "One too many"

    def test_what_ends_an_access_staff_and_other_businesses_go_on(
        self, tenant: Tenant, other_tenant: Tenant, api: Api, key: api_keys.NewKey, staff: User
    ) -> None:
        User.objects.create_user("owner@traders.example", "pw", tenant=tenant)
        for _ in range(3 - AuditEntry.objects.count()):
            self.change(tenant, acting_key_id=key.row.id)
        self.change(other_tenant, acting_key_id=key.row.id)
        self.change(tenant, actor_user_id=staff.pk)
        self.change(tenant)
        assert api.delete(f"/v1/api-keys/{key.row.id}").status_code == 200

    def test_only_the_ends_of_an_access_and_invited_people_have_room_at_the_limit(
        self, tenant: Tenant
    ) -> None:
        """What Meta has already done has room too. Its flows ask for room before they call Meta."""
        owner, written = User.objects.create_user("owner@traders.example", "pw", tenant=tenant), set()
        for _ in range(3 - AuditEntry.objects.count()):
            self.record(tenant, actor_user_id=owner.pk)
        for action in audit_labels.ACTIONS.keys() - audit.AFTER_UPSTREAM:
            with suppress(ServiceError):
                self.record(tenant, action, actor_user_id=owner.pk)
                written.add(action)
        named = {"revoke", "disconnect", "remove", "withdraw", "release", "join"}
        receivers = {"webhook_endpoint.delete", "flow_endpoint.delete"}
        assert written == receivers | {
            action for action in audit_labels.ACTIONS if action.rpartition(".")[2] in named
        }

    def test_an_endpoint_that_a_leaked_key_has_created_can_be_deleted_at_the_limit(
        self, tenant: Tenant, api: Api, key: api_keys.NewKey
    ) -> None:
        endpoint = endpoint_of(tenant)
        for _ in range(3 - AuditEntry.objects.count()):
            self.change(tenant, acting_key_id=key.row.id)
        path = f"/v1/webhooks/{endpoint.pk}"
        assert_error(api.patch(path, {"description": "changed"}), 429, "rate_limited")
        assert api.delete(path).status_code == 200
        assert not Endpoint.objects.exists()

    def test_a_day_later_there_is_room(
        self, tenant: Tenant, key: api_keys.NewKey, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(3 - AuditEntry.objects.count()):
            self.change(tenant, acting_key_id=key.row.id)
        tomorrow = now() + timedelta(days=1, minutes=1)
        monkeypatch.setattr(audit, "now", lambda: tomorrow)
        self.change(tenant, acting_key_id=key.row.id)

    def test_a_change_upstream_is_refused_before_it_is_made(
        self, tenant: Tenant, api: Api, number: PhoneNumber, graph: ScriptedGraph
    ) -> None:
        """A change that Meta has already made is recorded even if it exceeds the limit, because it cannot be undone."""
        key = api_keys.create(name="k", environment="live", tenant=tenant)
        for _ in range(3 - AuditEntry.objects.count()):
            self.change(tenant, acting_key_id=key.row.id)
        for operation, body in (("two-step", {"pin": "123456"}), ("register", {}), ("deregister", None)):
            answer = Api(key.key).post(f"/v1/numbers/{number.phone_number_id}/{operation}", body)
            assert_error(answer, 429, "rate_limited")
        assert graph.received == []
        Actor(key_id=key.row.id).record(
            "number.two_step", tenant_id=tenant.id, target_type="number", target_id=number.phone_number_id
        )

    def record(self, tenant: Tenant, action: str = "webhook_endpoint.verify", **actor: Any) -> None:
        """Record an action without doing it."""
        with transaction.atomic():
            audit.record(
                action=action,
                target_type="webhook_endpoint",
                target_id="1",
                tenant_id=tenant.id,
                **actor,
            )

    def change(self, tenant: Tenant, **actor: Any) -> None:
        changes = {"name": f"Name {threading.get_ident()} {now().timestamp()}"}
        tenant_settings.change(tenant_id=tenant.id, changes=changes, **actor)


def test_the_console_says_each_limit_where_it_is_met(
    tenant: Tenant, platform_app: PlatformApp, number: PhoneNumber, staff: User
) -> None:
    batches.create(tenant_id=tenant.id, environment="live", raw=BATCH)
    sessions.create(tenant_id=tenant.id, environment="live", return_url="https://shop.example/done")
    TestSandboxTenants().make(platform_app, sandbox=True)
    tenant_settings.change(tenant_id=tenant.id, changes={"name": "Asha and Sons"})
    owner = browser_of(tenant)
    says = {
        "/console/api-keys": "At most 100 keys",
        "/console/connected-apps": "At most 100 at the same time",
        "/console/numbers": "Open sign-up links: 1 of at most 200",
        "/console/batches": "1 of at most 500,000 messages, and 91 bytes of at most 1.0 GB",
        "/console/requests": "At most 200 calls and 8.0 MB of larger bodies a second",
        "/console/settings/audit": "At most 5,000 changes",
    }
    shown = {path: text(owner, path).replace("\xa0", " ") for path in says}
    found = {path: re.search(r"[^<>]*[Aa]t most[^<>]*", page) for path, page in shown.items()}
    said = {path: match[0] for path, match in found.items() if match is not None}
    assert {path: said.get(path) for path in says if says[path] not in said.get(path, "")} == {}
    assert all("/docs/limits/" in page for page in shown.values())
    assert "1 of 100 sandboxes" in text(logged_in(staff), "/admin/tenants/platformapp/")


def test_connected_apps_meet_their_limit(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 1)
    client, member = client_of(), member_of(tenant)
    assert at_once(lambda: code_of(client, member)) == [200, 409]
    AppConnection.objects.update(expires_at=now())
    assert code_of(client, member), "an expired connection does not count"
