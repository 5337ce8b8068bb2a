"""Scopes of API keys: calls that a key may make, rights that it may give to new keys, and its maker."""

import threading
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import orjson
import pytest
import redis
from django.db import connection

from gateway.api.errors import Forbidden
from gateway.clock import now
from gateway.roles import ALL_SCOPES, LIVE_SCOPES, KeyScope
from tenants.credentials import api_keys, bearer_tokens, key_cache
from tenants.models import ApiKey, AuditEntry, PlatformApp, Tenant, User
from tenants.team import members
from tests.browsers import browser_of, logged_in, text
from tests.fixtures import Api, assert_error
from tests.threads import at_once

pytestmark = pytest.mark.django_db


def key_of(tenant: Tenant, **chosen: Any) -> api_keys.NewKey:
    return api_keys.create(**{"name": "server", "environment": "live", "tenant": tenant, **chosen})


def api_of(tenant: Tenant, **chosen: Any) -> Api:
    return Api(key_of(tenant, **chosen).key)


def member_api(tenant: Tenant, role: str) -> Api:
    person = User.objects.create_user(f"{role}@traders.example", "pw", tenant=tenant, role=role)
    return Api(bearer_tokens.open_session(person).token)


class TestWhatATestKeyOpens:
    def test_a_sandbox_tenant_is_its_own(self, platform_app: PlatformApp) -> None:
        """A sandbox tenant has only the sandbox, so its keys can have all scopes."""
        sandbox = Tenant.objects.create(name="Try", app=platform_app, sandbox=True, status="active")
        platform = api_keys.create(name="p", environment="test", app=platform_app).key
        for api in (
            api_of(sandbox, environment="test"),
            Api(platform, **{"X-Service-Tenant": str(sandbox.id)}),
        ):
            assert api.patch("/v1/tenant", {"name": "Try again"}).status_code == 200

    def test_it_has_no_scope_that_it_cannot_use(self, tenant: Tenant, api: Api) -> None:
        made = api.post("/v1/api-keys", {"name": "laptop", "environment": "test"}).json()
        assert set(made["scopes"]) == ALL_SCOPES - LIVE_SCOPES
        asked = {"name": "laptop", "environment": "test", "scopes": ["messages", "billing"]}
        error = assert_error(api.post("/v1/api-keys", asked), 400, "invalid_request")
        assert error["details"]["fields"] == {"scopes": ["A test key cannot have: billing."]}


class TestWhatAKeyHandsOn:
    def test_scopes_numbers_and_end_are_within_its_own(self, tenant: Tenant) -> None:
        ends = now() + timedelta(days=10)
        own = key_of(tenant, scopes=["keys", "messages", "numbers"], expires_at=ends)
        made = Api(own.key).post("/v1/api-keys", {"name": "worker"})
        row = ApiKey.objects.get(pk=made.json()["id"])
        assert (set(row.scopes), row.expires_at) == ({"keys", "messages", "numbers"}, ends)
        assert (row.created_by_key_id, row.created_by_user_id) == (own.row.id, None)
        fewer = Api(own.key).post("/v1/api-keys", {"name": "worker", "scopes": ["messages"]}).json()
        assert (fewer["scopes"], fewer["created_by_key_id"]) == (["messages"], str(own.row.id))

    @pytest.mark.parametrize(
        ("asked", "details"),
        [
            ({"scopes": ["messages", "settings", "billing"]}, {"scopes": ["billing", "settings"]}),
            ({"expires_at": "2100-01-01T00:00:00Z"}, None),
        ],
    )
    def test_more_is_refused(
        self, tenant: Tenant, asked: dict[str, Any], details: dict[str, Any] | None
    ) -> None:
        own = key_of(tenant, scopes=["keys", "messages"], expires_at=now() + timedelta(days=10))
        answer = Api(own.key).post("/v1/api-keys", {"name": "more", **asked})
        error = assert_error(answer, 403, "forbidden")
        if details is not None:
            assert error["details"] == details
        assert ApiKey.objects.count() == 1

    @pytest.mark.parametrize(
        ("asked", "field"),
        [
            ({"scopes": []}, "scopes"),
            ({"scopes": ["everything"]}, "scopes"),
            ({"phone_number_ids": []}, "phone_number_ids"),
            ({"phone_number_ids": ["+91 98"]}, "phone_number_ids"),
            ({"phone_number_ids": ["100"], "scopes": ["messages", "webhooks"]}, "scopes"),
        ],
    )
    def test_what_is_no_scope_or_number_is_refused(self, api: Api, asked: dict[str, Any], field: str) -> None:
        error = assert_error(api.post("/v1/api-keys", {"name": "x", **asked}), 400, "invalid_request")
        (named,) = error["details"]["fields"]
        assert named.partition(".")[0] == field

    def test_numbers_stay_within_its_own(self, tenant: Tenant) -> None:
        """A key with numbers cannot have the scope `keys`. This test covers a row that has both anyway."""
        within = api_keys.Grant(phone_number_ids=frozenset({"100", "200"}))
        for numbers in (["100", "300"], ["300"]):
            with pytest.raises(Forbidden):
                key_of(tenant, phone_number_ids=numbers, within=within)
        assert key_of(tenant, within=within).row.phone_number_ids == ["100", "200"]
        assert key_of(tenant, phone_number_ids=["200"], within=within).row.phone_number_ids == ["200"]
        whole = key_of(tenant)
        with pytest.raises(Forbidden):
            api_keys.rotate(keys=ApiKey.objects.all(), key_id=whole.row.id, within=within)

    def test_a_developer_hands_on_what_the_role_opens(self, tenant: Tenant) -> None:
        developer = member_api(tenant, "developer")
        made = developer.post("/v1/api-keys", {"name": "server"}).json()
        assert set(made["scopes"]) == ALL_SCOPES - LIVE_SCOPES
        assert_error(Api(made["key"]).patch("/v1/tenant", {"name": "Mine"}), 403, "forbidden")
        asked = {"name": "server", "scopes": ["settings"]}
        assert_error(developer.post("/v1/api-keys", asked), 403, "forbidden")
        assert member_api(tenant, "owner").post("/v1/api-keys", asked).status_code == 201


class TestRotation:
    def test_a_key_with_an_end_never_becomes_one_without(self, tenant: Tenant) -> None:
        """A key that was created on the command line rotates itself twice."""
        ends = now() + timedelta(days=90)
        own = key_of(tenant, expires_at=ends, scopes=["messages", "keys"])
        new = Api(own.key).post(f"/v1/api-keys/{own.row.id}/rotate").json()
        row = ApiKey.objects.get(pk=new["id"])
        assert (row.expires_at, set(row.scopes)) == (ends, {"messages", "keys"})
        again = Api(own.key).post(f"/v1/api-keys/{own.row.id}/rotate").json()
        own.row.refresh_from_db()
        assert ApiKey.objects.get(pk=again["id"]).expires_at == own.row.expires_at, "it ends with the old one"
        further = Api(new["key"]).post(f"/v1/api-keys/{new['id']}/rotate").json()
        assert ApiKey.objects.get(pk=further["id"]).expires_at == ends

    def test_an_owner_rotates_a_key_to_its_own_end_however_often(self, tenant: Tenant) -> None:
        ends = now() + timedelta(days=90)
        old = key_of(tenant, expires_at=ends)
        keys = ApiKey.objects.for_tenant(tenant.id)
        for _ in range(2):
            assert api_keys.rotate(keys=keys, key_id=old.row.id).row.expires_at == ends

    def test_an_owner_rotates_the_oldest_of_a_chain_to_its_own_end(self, tenant: Tenant) -> None:
        ends = now() + timedelta(days=90)
        oldest = key_of(tenant, expires_at=ends)
        keys = ApiKey.objects.for_tenant(tenant.id)
        second = api_keys.rotate(keys=keys, key_id=oldest.row.id)
        api_keys.rotate(keys=keys, key_id=second.row.id)
        assert api_keys.rotate(keys=keys, key_id=oldest.row.id).row.expires_at == ends

    @pytest.mark.parametrize(
        "own",
        [
            {"scopes": ["keys", "messages"]},
            {"expires_at": now() + timedelta(days=10)},
        ],
        ids=["fewer scopes", "an earlier end"],
    )
    def test_a_key_that_can_more_is_not_rotated(self, tenant: Tenant, own: dict[str, Any]) -> None:
        stronger = key_of(tenant)
        path = f"/v1/api-keys/{stronger.row.id}/rotate"
        assert_error(api_of(tenant, **own).post(path), 403, "forbidden")
        stronger.row.refresh_from_db()
        assert stronger.row.expires_at is None

    def test_a_developer_rotates_no_key_of_more_than_the_role(self, tenant: Tenant) -> None:
        owners, own = key_of(tenant), key_of(tenant, scopes=["messages"])
        browser = browser_of(tenant, "developer")
        assert browser.post(f"/console/api-keys/{owners.row.id}/rotate").status_code == 302
        assert "has scopes that your role cannot give" in text(browser, "/console/api-keys")
        assert browser.post(f"/console/api-keys/{own.row.id}/rotate").status_code == 200


def test_a_key_ends_itself_without_the_scope(tenant: Tenant) -> None:
    own, other = key_of(tenant, scopes=["messages"], phone_number_ids=["100"]), key_of(tenant)
    assert_error(Api(own.key).delete(f"/v1/api-keys/{other.row.id}"), 403, "forbidden")
    assert_error(Api(own.key).post(f"/v1/api-keys/{own.row.id}/rotate"), 403, "forbidden")
    assert Api(own.key).delete(f"/v1/api-keys/{own.row.id}").status_code == 200
    assert_error(Api(own.key).get("/v1/tenant"), 401, "unauthorized")


class TestTheMirror:
    def test_scopes_and_numbers_come_from_it(self, tenant: Tenant, empty_valkey: redis.Redis) -> None:
        new = key_of(tenant, scopes=["messages"], phone_number_ids=["100"])
        key_cache.write_key(new.row)
        key_cache.clear_process_cache()
        ApiKey.objects.all().delete()
        facts = key_cache.key_by_hash(new.row.key_hash)
        assert facts is not None
        assert set(facts.scopes) == {KeyScope.MESSAGES}
        assert facts.phone_number_ids == frozenset({"100"})

    @pytest.mark.parametrize("missing", ["scopes", "phone_number_ids"])
    def test_an_entry_of_the_former_version_opens_nothing_by_itself(
        self, tenant: Tenant, empty_valkey: redis.Redis, missing: str
    ) -> None:
        """The cached entry lacks a member, so the database is read instead."""
        new = key_of(tenant, scopes=["messages"], phone_number_ids=["100"])
        key_cache.write_key(new.row)
        name = f"key:{new.row.key_hash}"
        entry = orjson.loads(bytes(empty_valkey.get(name) or b""))  # type: ignore[arg-type]
        del entry[missing]
        empty_valkey.set(name, orjson.dumps(entry))
        key_cache.clear_process_cache()
        assert_error(Api(new.key).get("/v1/numbers"), 403, "forbidden")
        assert Api(new.key).get("/v1/messages").status_code == 200

    def test_a_scope_of_a_later_version_opens_nothing(self, tenant: Tenant) -> None:
        new = key_of(tenant)
        ApiKey.objects.update(scopes=["messages", "teleportation"])
        key_cache.write_key(ApiKey.objects.get())
        assert Api(new.key).get("/v1/messages").status_code == 200
        assert_error(Api(new.key).get("/v1/numbers"), 403, "forbidden")


def test_keys_of_before_have_everything(tenant: Tenant) -> None:
    """The previous version writes a row without scopes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_apikey (id, tenant_id, name, environment, prefix, key_hash, created_at) "
            "VALUES (gen_random_uuid(), %s, 'old', 'live', 'wb_live_x', 'x', now())",
            [tenant.id],
        )
    assert set(ApiKey.objects.get().scopes) == ALL_SCOPES


def test_makers_of_keys_of_before_come_from_the_audit_log(tenant: Tenant) -> None:
    owner = User.objects.create_user("owner@traders.example", "pw", tenant=tenant)
    first = key_of(tenant, actor_user_id=owner.pk)
    second = key_of(tenant, acting_key_id=first.row.id)
    ApiKey.objects.update(created_by_user_id=None, created_by_key_id=None)
    with connection.cursor() as cursor:
        cursor.execute(import_module("tenants.migrations.0014_makers_of_keys").MAKERS)
    made = ApiKey.objects.order_by("id").values_list("pk", "created_by_user_id", "created_by_key_id")
    assert list(made) == [(first.row.id, owner.pk, None), (second.row.id, None, first.row.id)]


class TestAMemberWhoLeaves:
    @pytest.fixture
    def people(self, tenant: Tenant) -> tuple[User, User]:
        owner = User.objects.create_user("owner@traders.example", "pw", tenant=tenant)
        leaver = User.objects.create_user("ravi@traders.example", "pw", tenant=tenant, role="developer")
        return owner, leaver

    def test_the_owner_is_shown_their_keys_and_chooses(
        self, tenant: Tenant, people: tuple[User, User], client: Any
    ) -> None:
        owner, leaver = people
        own = key_of(tenant, name="own", actor_user_id=leaver.pk)
        by_key = key_of(tenant, name="by key", acting_key_id=own.row.id)
        kept = key_of(tenant, name="kept", actor_user_id=leaver.pk)
        others = key_of(tenant, name="others", actor_user_id=owner.pk)
        ended = key_of(tenant, name="ended", actor_user_id=leaver.pk)
        api_keys.revoke(keys=ApiKey.objects.all(), key_id=ended.row.id)
        client.force_login(owner)
        page = f"/console/team/people/{leaver.pk}/remove"
        ApiKey.objects.filter(pk=kept.row.pk).update(last_used_at=datetime(2026, 12, 1, 20, 30, tzinfo=UTC))
        shown = text(client, page)
        assert "last used 2 Dec 2026" in shown, "the day in the owner's zone"
        assert [new.row.name for new in (own, by_key, kept, others, ended) if new.row.prefix in shown] == [
            "own",
            "by key",
            "kept",
        ]
        chosen = [str(own.row.id), str(by_key.row.id)]
        assert client.post(page, {"keys": [*chosen, str(others.row.id)]}).status_code == 400
        assert User.objects.filter(pk=leaver.pk).exists()
        assert client.post(page, {"keys": chosen}).status_code == 302
        working = ApiKey.objects.working().values_list("name", flat=True)
        assert set(working) == {"kept", "others"}
        after = AuditEntry.objects.get(action="team.remove").details["after"]
        assert after["ended_keys"] == [own.row.prefix, by_key.row.prefix]
        assert after["kept_keys"] == [kept.row.prefix]
        assert f"Ended keys: – → {own.row.prefix}, {by_key.row.prefix}" in text(
            client, "/console/settings/audit"
        )
        assert "by ravi@traders.example (removed)" in text(client, "/console/api-keys")

    def test_every_key_down_the_line_is_theirs_and_no_other_is_ended(
        self, tenant: Tenant, people: tuple[User, User]
    ) -> None:
        owner, leaver = people
        line = [key_of(tenant, actor_user_id=leaver.pk)]
        for _ in range(3):
            line.append(key_of(tenant, acting_key_id=line[-1].row.id))
        others = [key_of(tenant, actor_user_id=owner.pk), key_of(tenant)]
        members.remove(
            tenant_id=tenant.id,
            user_id=leaver.pk,
            actor_user_id=owner.pk,
            ending_keys=[new.row.pk for new in (*line, *others)],
        )
        assert set(ApiKey.objects.working()) == {new.row for new in others}
        after = AuditEntry.objects.get(action="team.remove").details["after"]
        assert after == {"role": None, "ended_keys": [new.row.prefix for new in line]}

    def test_a_key_that_is_made_meanwhile_is_refused(self, tenant: Tenant, people: tuple[User, User]) -> None:
        owner, leaver = people
        members.remove(tenant_id=tenant.id, user_id=leaver.pk, actor_user_id=owner.pk)
        with pytest.raises(Forbidden):
            key_of(tenant, actor_user_id=leaver.pk)

    def test_a_key_that_was_revoked_meanwhile_makes_none(self, tenant: Tenant) -> None:
        used = key_of(tenant).row
        api_keys.revoke(keys=ApiKey.objects.all(), key_id=used.id)
        with pytest.raises(Forbidden):
            key_of(tenant, acting_key_id=used.id)

    @pytest.mark.django_db(transaction=True)
    def test_no_rotation_during_the_removal_leaves_a_working_key(
        self, tenant: Tenant, people: tuple[User, User], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner, leaver = people
        made, revoke = key_of(tenant, actor_user_id=leaver.pk).row, api_keys.revoke

        def rotate() -> None:
            api_keys.rotate(keys=ApiKey.objects.all(), key_id=made.id, actor_user_id=leaver.pk)

        rotation: list[Exception] = []
        beside = threading.Thread(target=lambda: rotation.extend(at_once(rotate)))

        def revoke_during_the_rotation(**named: Any) -> ApiKey:
            beside.start()
            # Gives the rotation time to take effect, unless a lock makes it wait for the removal.
            beside.join(0.3)
            return revoke(**named)

        monkeypatch.setattr(api_keys, "revoke", revoke_during_the_rotation)
        members.remove(tenant_id=tenant.id, user_id=leaver.pk, actor_user_id=owner.pk, ending_keys=[made.id])
        beside.join()
        assert [type(error) for error in rotation] == [Forbidden]
        assert not ApiKey.objects.working().exists()


class TestTheConsole:
    def made(self, tenant: Tenant, role: str = "owner", **form: Any) -> ApiKey:
        browser = browser_of(tenant, role)
        answer = browser.post("/console/api-keys", {"name": "x", "environment": "live", **form})
        assert answer.status_code == 200, answer.content
        return ApiKey.objects.latest("id")

    def test_an_owner_chooses_scopes_numbers_and_end(self, tenant: Tenant) -> None:
        key = self.made(
            tenant, limits="True", scopes=["messages", "events"], phone_number_ids="100, 200", days="30"
        )
        assert (key.scopes, key.phone_number_ids) == (["events", "messages"], ["100", "200"])
        assert abs(key.expires_at - now() - timedelta(days=30)) < timedelta(minutes=1)  # type: ignore[operator]
        page = text(browser_of_same(tenant), "/console/api-keys")
        assert "numbers 100, 200" in page
        assert "by owner@" in page

    def test_what_such_a_key_cannot_have_is_left_out(self, tenant: Tenant) -> None:
        everything = [scope.value for scope in KeyScope]
        key = self.made(tenant, limits="True", scopes=everything, environment="test", phone_number_ids="100")
        assert key.scopes == ["events", "messages", "numbers"]

    @pytest.mark.parametrize(
        ("environment", "scopes", "shown"),
        [
            ("live", ALL_SCOPES, "All scopes"),
            ("live", ALL_SCOPES - {KeyScope.KEYS}, "billing"),
            ("live", ALL_SCOPES - LIVE_SCOPES, "keys"),
            ("test", ALL_SCOPES - LIVE_SCOPES, "All scopes"),
            ("test", ALL_SCOPES - LIVE_SCOPES - {KeyScope.EVENTS}, "keys"),
        ],
    )
    def test_a_key_with_every_possible_scope_says_so(
        self, tenant: Tenant, environment: str, scopes: set[KeyScope], shown: str
    ) -> None:
        browser = browser_of(tenant)
        browser.post("/console/preferences", {"environment": environment})
        key_of(tenant, environment=environment, scopes=scopes)
        page = text(browser, "/console/api-keys")
        assert [
            label for label in ("All scopes", f'<span class="badge">{shown}</span>') if label in page
        ] == [shown if shown == "All scopes" else f'<span class="badge">{shown}</span>']

    def test_nothing_ticked_is_no_key(self, tenant: Tenant) -> None:
        answer = browser_of(tenant).post(
            "/console/api-keys", {"name": "x", "environment": "live", "limits": "True"}
        )
        assert answer.status_code == 400
        assert "Choose at least one" in answer.content.decode()
        assert not ApiKey.objects.exists()

    def test_a_developer_sees_and_gets_the_scopes_of_the_role(self, tenant: Tenant) -> None:
        assert set(self.made(tenant, role="developer").scopes) == ALL_SCOPES - LIVE_SCOPES
        browser = browser_of_same(tenant, "developer")
        assert 'value="billing"' not in text(browser, "/console/api-keys")
        form = {"name": "y", "environment": "live", "limits": "True", "scopes": ["billing"]}
        assert browser.post("/console/api-keys", form).status_code == 400


def browser_of_same(tenant: Tenant, role: str = "owner") -> Any:
    """Another browser with the user that `browser_of` created."""

    return logged_in(User.objects.get(tenant=tenant, role=role))
