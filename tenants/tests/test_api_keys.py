"""`/v1/api-keys`: a key is shown once, rotated with an overlap, and revoked permanently."""

from datetime import datetime, timedelta

import pytest
import redis
from django.db import OperationalError, connection

from gateway.api.errors import Forbidden
from gateway.clock import now
from gateway.valkey import write_behind
from gateway.valkey.write_behind import Debounced
from tenants.credentials import api_keys, key_cache, key_cache_repair
from tenants.credentials.bearer_tokens import recalled_caller_for
from tenants.models import ApiKey, AuditEntry, PlatformApp, Tenant, User
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db


def test_the_full_key_is_in_the_create_answer_and_nowhere_else(api: Api, tenant: Tenant) -> None:
    created = api.post("/v1/api-keys", {"name": "till", "environment": "test"})
    assert created.status_code == 201
    body = created.json()
    assert body["key"].startswith("wb_test_")
    assert len(body["key"]) == len("wb_test_") + 40
    assert body["prefix"] == body["key"][:16]
    assert body["key"] not in api.get("/v1/api-keys").content.decode()
    assert not any(body["key"] in str(row) for row in ApiKey.objects.values())
    assert Api(body["key"]).get("/v1/tenant").json()["id"] == str(tenant.id)


def test_a_revoked_key_is_refused_and_a_key_can_revoke_itself(api: Api, key: api_keys.NewKey) -> None:
    answer = api.delete(f"/v1/api-keys/{key.row.id}")
    assert answer.status_code == 200
    assert answer.json()["id"] == str(key.row.id)
    assert answer.json()["revoked_at"].endswith("Z")
    assert_error(api.get("/v1/tenant"), 401, "unauthorized")


def test_rotation_leaves_the_old_key_24_hours(api: Api, key: api_keys.NewKey) -> None:
    answer = api.post(f"/v1/api-keys/{key.row.id}/rotate")
    assert answer.status_code == 201
    body = answer.json()
    assert set(body) == {"id", "name", "environment", "prefix", "key", "replaces", "old_key_expires_at"}
    assert body["replaces"] == str(key.row.id)
    assert api.get("/v1/tenant").status_code == 200
    assert Api(body["key"]).get("/v1/tenant").status_code == 200
    key.row.refresh_from_db()
    assert key.row.expires_at is not None
    assert timedelta(hours=23, minutes=59) < key.row.expires_at - now() <= timedelta(hours=24)


def test_an_expired_key_is_refused_and_cannot_be_rotated(api: Api, key: api_keys.NewKey) -> None:
    second = api.post("/v1/api-keys", {"name": "second"}).json()
    ApiKey.objects.filter(pk=key.row.id).update(expires_at=now() - timedelta(seconds=1))
    key.row.refresh_from_db()
    key_cache.write_key(key.row)
    assert_error(api.get("/v1/tenant"), 401, "unauthorized")
    assert_error(Api(second["key"]).post(f"/v1/api-keys/{key.row.id}/rotate"), 409, "conflict")


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "name"), ({"name": ""}, "name"), ({"name": "x", "environment": "prod"}, "environment")],
)
def test_a_bad_body_names_its_field(api: Api, body: dict[str, str], field: str) -> None:
    error = assert_error(api.post("/v1/api-keys", body), 400, "invalid_request")
    assert list(error["details"]["fields"]) == [field]


def test_a_used_key_says_when(api: Api, key: api_keys.NewKey) -> None:
    api.get("/v1/tenant")
    write_behind.flush()
    api_keys.write_last_used()
    key.row.refresh_from_db()
    assert key.row.last_used_at is not None
    assert abs(key.row.last_used_at - now()) < timedelta(minutes=1)
    assert api_keys.write_last_used() == 0


def note_use(key: api_keys.NewKey, at: datetime, valkey: redis.Redis) -> None:
    """Note a use of the key in Valkey, and no other use."""
    write_behind.flush()  # write the uses by earlier tests
    valkey.delete(api_keys.LAST_USED)
    valkey.hset(api_keys.LAST_USED, str(key.row.pk), str(at.timestamp()))


def test_the_uses_of_a_few_seconds_are_written_once(key: api_keys.NewKey, empty_valkey: redis.Redis) -> None:
    write_behind.flush()  # write the uses by earlier tests
    for is_written in (True, False):
        empty_valkey.delete(api_keys.LAST_USED)
        api_keys.record_use(key.row.pk)
        write_behind.flush()
        assert empty_valkey.hexists(api_keys.LAST_USED, str(key.row.pk)) is is_written


def test_a_use_that_is_stored_late_hides_no_later_one(
    key: api_keys.NewKey, empty_valkey: redis.Redis
) -> None:
    later = now()
    ApiKey.objects.filter(pk=key.row.pk).update(last_used_at=later)
    note_use(key, later - timedelta(minutes=1), empty_valkey)
    assert api_keys.write_last_used() == 1
    key.row.refresh_from_db()
    assert key.row.last_used_at == later


def test_a_use_outlives_a_failure_of_the_database(key: api_keys.NewKey, empty_valkey: redis.Redis) -> None:
    note_use(key, now(), empty_valkey)

    def fail(*_: object) -> None:
        raise OperationalError

    with connection.execute_wrapper(fail), pytest.raises(OperationalError):
        api_keys.write_last_used()
    assert api_keys.write_last_used() == 1
    key.row.refresh_from_db()
    assert key.row.last_used_at is not None


def test_a_member_who_was_deactivated_meanwhile_makes_no_key(tenant: Tenant) -> None:
    member = User.objects.create_user("gone@traders.example", tenant=tenant, role="owner", is_active=False)
    with pytest.raises(Forbidden, match="do not belong"):
        api_keys.create(name="x", environment="live", tenant=tenant, actor_user_id=member.pk)


def test_the_use_of_a_remembered_key_is_noted_without_waiting_for_valkey(
    key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_cache.remember_many([key.row.key_hash])

    def refused() -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(
            write_behind, "_debounced", Debounced(write_behind.flush, seconds=3600.0, collects=True)
        )
        patch.setattr(api_keys, "valkey", refused)
        assert recalled_caller_for(key.key) is not None
    write_behind.flush()
    api_keys.write_last_used()
    key.row.refresh_from_db()
    assert key.row.last_used_at is not None


def test_a_test_key_manages_test_keys_only(api: Api, tenant: Tenant, key: api_keys.NewKey) -> None:
    made = api.post("/v1/api-keys", {"name": "t", "environment": "test"}).json()
    test = Api(made["key"])
    assert [row["id"] for row in test.get("/v1/api-keys").json()["data"]] == [made["id"]]
    assert_error(test.post("/v1/api-keys", {"name": "x", "environment": "live"}), 403, "forbidden")
    assert test.post("/v1/api-keys", {"name": "x"}).json()["environment"] == "test"
    assert_error(test.post(f"/v1/api-keys/{key.row.id}/rotate"), 404, "not_found")
    assert_error(test.delete(f"/v1/api-keys/{key.row.id}"), 404, "not_found")
    assert test.post(f"/v1/api-keys/{made['id']}/rotate").json()["environment"] == "test"
    assert api.delete(f"/v1/api-keys/{made['id']}").status_code == 200


def test_a_key_lists_those_of_its_own_environment(api: Api, tenant: Tenant) -> None:
    made = api.post("/v1/api-keys", {"name": "t", "environment": "test"}).json()
    assert [row["name"] for row in api.get("/v1/api-keys").json()["data"]] == ["server"]
    assert [row["name"] for row in Api(made["key"]).get("/v1/api-keys").json()["data"]] == ["t"]


def test_a_sandbox_tenant_has_one_environment_so_all_its_keys_are_listed(
    platform_app: PlatformApp, app_key: api_keys.NewKey
) -> None:
    sandbox = Tenant.objects.create(name="Try", app=platform_app, sandbox=True, status="active")
    made = api_keys.create(name="t", environment="test", tenant=sandbox).row
    platform = Api(app_key.key, **{"X-Service-Tenant": str(sandbox.id)})
    assert [row["id"] for row in platform.get("/v1/api-keys").json()["data"]] == [str(made.id)]


def test_a_key_may_be_made_with_its_end(api: Api) -> None:
    ends = (now() + timedelta(days=30)).isoformat()
    made = api.post("/v1/api-keys", {"name": "contractor", "expires_at": ends}).json()
    assert made["expires_at"][:19] == ends[:19]
    assert Api(made["key"]).get("/v1/tenant").status_code == 200
    ApiKey.objects.filter(pk=made["id"]).update(expires_at=now())
    key_cache_repair.reconcile()
    key_cache.clear_process_cache()
    assert_error(Api(made["key"]).get("/v1/tenant"), 401, "unauthorized")
    for wrong in ("2020-01-01T00:00:00Z", "soon", 5):
        error = assert_error(
            api.post("/v1/api-keys", {"name": "x", "expires_at": wrong}), 400, "invalid_request"
        )
        assert list(error["details"]["fields"]) == ["expires_at"]


def test_rotating_never_prolongs_a_key(api: Api, key: api_keys.NewKey) -> None:
    ends = now() + timedelta(hours=1)
    ApiKey.objects.filter(pk=key.row.id).update(expires_at=ends)
    api.post(f"/v1/api-keys/{key.row.id}/rotate")
    key.row.refresh_from_db()
    assert key.row.expires_at == ends


def test_the_end_of_a_key_is_written_in_an_error_like_in_the_api(api: Api) -> None:
    ends, later = ((now() + timedelta(hours=hours)).isoformat() for hours in (1, 2))
    made = api.post("/v1/api-keys", {"name": "contractor", "expires_at": ends}).json()
    refused = Api(made["key"]).post("/v1/api-keys", {"name": "second", "expires_at": later})
    error = assert_error(refused, 403, "forbidden")
    assert error["details"] == {"expires_at": made["expires_at"]}


def test_a_key_that_is_revoked_twice_keeps_its_first_end(api: Api, key: api_keys.NewKey) -> None:
    made = api.post("/v1/api-keys", {"name": "second"}).json()
    first = api.delete(f"/v1/api-keys/{made['id']}").json()
    assert api.delete(f"/v1/api-keys/{made['id']}").json() == first
    assert AuditEntry.objects.filter(action="api_key.revoke").count() == 1


def test_a_rotated_key_is_the_old_one_with_another_secret(tenant: Tenant) -> None:
    chosen = {
        "name": "till",
        "environment": "test",
        "scopes": ["messages"],
        "phone_number_ids": ["100", "200"],
    }
    old = api_keys.create(tenant=tenant, **chosen)  # type: ignore[arg-type]
    new = api_keys.rotate(keys=ApiKey.objects.all(), key_id=old.row.id).row
    assert {name: getattr(new, name) for name in chosen} == chosen
    assert (new.tenant, new.replaces, new.expires_at) == (tenant, old.row, None)
    entry = AuditEntry.objects.get(action="api_key.rotate")
    assert entry.details.items() >= {**chosen, "prefix": new.prefix, "replaces": str(old.row.id)}.items()
    assert entry.details["old_key_expires_at"]


def test_an_owner_rotates_a_key_that_rotated_itself_to_the_end_it_was_made_with(tenant: Tenant) -> None:
    ends = now() + timedelta(days=90)
    old = api_keys.create(name="k", environment="live", tenant=tenant, expires_at=ends)
    keys = ApiKey.objects.all()
    for _ in range(2):
        within = api_keys.Grant(ends_at=ApiKey.objects.get(pk=old.row.id).expires_at)
        api_keys.rotate(keys=keys, key_id=old.row.id, within=within, acting_key_id=old.row.id)
    assert ApiKey.objects.latest("id").expires_at != ends, "by itself, it only got one that ends with it"
    assert api_keys.rotate(keys=keys, key_id=old.row.id).row.expires_at == ends


def test_uses_that_a_run_could_not_store_are_stored_before_later_ones(
    key: api_keys.NewKey, empty_valkey: redis.Redis
) -> None:
    write_behind.flush()
    later = api_keys.create(name="later", environment="live", tenant=key.row.tenant).row
    for name, row in ((api_keys.LAST_USED_WRITING, key.row), (api_keys.LAST_USED, later)):
        empty_valkey.delete(name)
        empty_valkey.hset(name, str(row.pk), str(now().timestamp()))
    for row in (key.row, later):
        assert api_keys.write_last_used() == 1
        row.refresh_from_db()
        assert row.last_used_at is not None
    assert not empty_valkey.exists(api_keys.LAST_USED_WRITING, api_keys.LAST_USED)


def test_a_person_of_another_business_makes_no_key_and_staff_do(
    tenant: Tenant, other_tenant: Tenant, staff: User
) -> None:
    stranger = User.objects.create_user("owner@bina.example", tenant=other_tenant, role="owner")
    with pytest.raises(Forbidden, match="do not belong"):
        api_keys.create(name="x", environment="live", tenant=tenant, actor_user_id=stranger.pk)
    made = api_keys.create(name="x", environment="live", tenant=tenant, actor_user_id=staff.pk)
    assert made.row.created_by_user_id == staff.pk


def test_the_audit_log_names_the_acting_key(api: Api, key: api_keys.NewKey) -> None:
    api.post("/v1/api-keys", {"name": "second"})
    api.post(f"/v1/api-keys/{key.row.id}/rotate")
    api.delete(f"/v1/api-keys/{key.row.id}")
    entries = AuditEntry.objects.order_by("-id")[:3]
    assert {entry.details["acting_key"] for entry in entries} == {key.row.prefix}
    assert [entry.action for entry in entries] == ["api_key.revoke", "api_key.rotate", "api_key.create"]
