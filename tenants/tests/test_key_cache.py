"""The key mirror: no database on the hot path, bounded staleness, and a repair that counts its corrections."""

import time
from datetime import timedelta
from typing import Any

import orjson
import pytest
import redis
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from gateway.clock import now
from gateway.monitoring import admin_health
from tenants import tenant_status
from tenants.credentials import api_keys, key_cache, key_cache_repair
from tenants.models import ApiKey, Tenant
from tests.fixtures import Api, assert_error

pytestmark = pytest.mark.django_db


def use(api: Api) -> int:
    return int(api.get("/v1/numbers").status_code)


def age_entry(client: redis.Redis, name: str) -> None:
    """Make an entry so old that readers do not trust it."""
    entry = orjson.loads(bytes(client.get(name) or b""))  # type: ignore[arg-type]
    client.set(name, orjson.dumps({**entry, "as_of": entry["as_of"] - key_cache.FRESH_SECONDS - 0.1}))


def test_a_known_key_is_authenticated_without_the_database(api: Api, key: api_keys.NewKey) -> None:
    key_cache.key_by_hash(key.row.key_hash)
    key_cache.clear_process_cache()
    with CaptureQueriesContext(connection) as queries:
        facts = key_cache.key_by_hash(key.row.key_hash)
    assert facts is not None
    assert facts.id == key.row.id
    assert len(queries) == 0, "from Valkey"


def test_a_flushed_valkey_costs_one_look_into_the_database(api: Api, empty_valkey: redis.Redis) -> None:
    assert use(api) == 200
    empty_valkey.flushdb()
    key_cache.clear_process_cache()
    assert use(api) == 200


def test_a_revocation_that_valkey_missed_arrives_within_ten_seconds(
    api: Api, key: api_keys.NewKey, empty_valkey: redis.Redis
) -> None:
    """Valkey missed the write, and the process has just cached the key. The key is rejected after 4 + 5 seconds."""
    assert use(api) == 200
    assert key_cache.PROCESS_SECONDS + key_cache.FRESH_SECONDS < 10
    ApiKey.objects.update(revoked_at=now())
    key_cache.clear_process_cache()
    age_entry(empty_valkey, f"key:{key.row.key_hash}")
    assert_error(api.get("/v1/numbers"), 401, "unauthorized")


def test_a_suspension_that_valkey_missed_arrives_too(
    api: Api, tenant: Tenant, empty_valkey: redis.Redis
) -> None:
    assert use(api) == 200
    Tenant.objects.update(status="suspended")
    key_cache.clear_process_cache()
    age_entry(empty_valkey, f"tenant:{tenant.id}")
    assert_error(api.get("/v1/numbers"), 403, "tenant_suspended")


def test_the_repair_brings_no_key_back_that_is_revoked_while_it_runs(
    key: api_keys.NewKey, empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable = key_cache_repair._readable

    def revoked_after(rows: Any) -> Any:
        found = list(readable(rows))
        if rows.model is ApiKey:
            ApiKey.objects.update(revoked_at=now())
            key_cache.write_key(ApiKey.objects.get())
        return found

    monkeypatch.setattr(key_cache_repair, "_readable", revoked_after)
    # This last step would correct the entry, but only after all other rows.
    monkeypatch.setattr(key_cache_repair, "_drop_dead_keys", lambda: 0)
    key_cache_repair.reconcile()
    entry = empty_valkey.get(f"key:{key.row.key_hash}")
    facts = key_cache.KEYS.parse(entry, max_age=None)  # type: ignore[arg-type]
    assert facts is not None
    assert facts.revoked


def test_an_entry_is_as_old_as_the_row_that_it_was_read_from(
    key: api_keys.NewKey, empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at = []

    def read(key_hash: str) -> key_cache.KeyFacts | None:
        read_at.append(time.time())
        return key_cache.read_key(key_hash)

    monkeypatch.setattr(key_cache.KEYS, "read", read)
    key_cache.clear_process_cache()
    assert key_cache.key_by_hash(key.row.key_hash) is not None
    entry = orjson.loads(bytes(empty_valkey.get(f"key:{key.row.key_hash}") or b""))  # type: ignore[arg-type]
    assert entry["as_of"] <= read_at[0]


def test_what_was_read_before_a_change_is_not_kept(
    key: api_keys.NewKey, empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(key_hash: str) -> key_cache.KeyFacts | None:
        """Read the key, then revoke it. The result is out of date before it is cached."""
        former = key_cache.read_key(key_hash)
        ApiKey.objects.update(revoked_at=now())
        key_cache.write_key(ApiKey.objects.get())
        return former

    monkeypatch.setattr(key_cache.KEYS, "read", read)
    key_cache.key_by_hash(key.row.key_hash)
    monkeypatch.undo()
    facts = key_cache.key_by_hash(key.row.key_hash)
    assert facts is not None
    assert facts.revoked


def test_a_change_of_another_key_keeps_nothing_from_being_remembered(
    key: api_keys.NewKey, empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one tenant constantly creates and revokes keys, the keys of others must stay cached."""
    other = api_keys.create(name="other", environment="live", tenant=key.row.tenant).row

    def read(key_hash: str) -> key_cache.KeyFacts | None:
        found = key_cache.read_key(key_hash)
        key_cache.write_key(other)
        return found

    empty_valkey.flushdb()
    key_cache.clear_process_cache()
    monkeypatch.setattr(key_cache.KEYS, "read", read)
    key_cache.key_by_hash(key.row.key_hash)
    assert key_cache.KEYS.recall(key.row.key_hash) is not None


def test_an_entry_that_is_not_ours_is_not_believed(
    api: Api, key: api_keys.NewKey, empty_valkey: redis.Redis
) -> None:
    for garbage in (b"", b"{}", b"[]", b"\xff", b'{"as_of": 1e18}'):
        empty_valkey.set(f"key:{key.row.key_hash}", garbage)
        key_cache.clear_process_cache()
        assert use(api) == 200


def test_a_key_expires_while_every_cache_still_holds_it(
    api: Api, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expiry is part of the cached facts, so a key expires without a write to the cache."""
    end = now() + timedelta(hours=24)
    ApiKey.objects.update(expires_at=end)
    assert use(api) == 200
    with CaptureQueriesContext(connection) as queries:
        monkeypatch.setattr(key_cache, "now", lambda: end - timedelta(microseconds=1))
        assert use(api) == 200
        assert not any("tenants_apikey" in (query["sql"] or "") for query in queries), (
            "only the caches were asked"
        )
        monkeypatch.setattr(key_cache, "now", lambda: end)
        assert_error(api.get("/v1/numbers"), 401, "unauthorized")
    asked = [query["sql"] for query in queries if "tenants_apikey" in (query["sql"] or "")]
    assert len(asked) <= 1, "the caches refuse, the database only says why"


@pytest.mark.django_db(transaction=True)
def test_a_key_in_use_is_read_again_beside_its_calls(
    key: api_keys.NewKey, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_cache.remember_many([key.row.key_hash])
    ends = key_cache.KEYS.cache[key.row.key_hash][0]
    assert key_cache.recall(key.row.key_hash) is not None
    assert key.row.key_hash not in key_cache._ageing, "it is fresh"
    ApiKey.objects.update(revoked_at=now())
    moment = ends - key_cache.PROCESS_SECONDS + key_cache.REFRESHED_AFTER_SECONDS + 0.1
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    recalled = key_cache.recall(key.row.key_hash)
    assert recalled is not None
    assert recalled[0].usable, "the call itself asks nobody"
    monkeypatch.undo()
    deadline = time.monotonic() + 10
    while (again := key_cache.recall(key.row.key_hash)) is None or again[0].usable:
        assert time.monotonic() < deadline, "never read again"
    assert key_cache.KEYS.cache[key.row.key_hash][0] > ends


def test_many_keys_are_read_with_their_tenants_by_one_statement(
    key: api_keys.NewKey, tenant: Tenant, other_tenant: Tenant
) -> None:
    others = api_keys.create(name="other", environment="live", tenant=other_tenant)
    hashes = {each.row.key_hash for each in (key, others)}
    with CaptureQueriesContext(connection) as queries:
        key_cache.remember_many(hashes)
        recalled = [key_cache.recall(key_hash) for key_hash in hashes]
    assert {each[1].id for each in recalled if each} == {tenant.id, other_tenant.id}
    assert len(queries) == 1


def test_a_call_through_django_has_its_ageing_key_read_again(
    api: Api, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []
    monkeypatch.setattr(key_cache._refreshing, "ask", lambda: asked.append(set(key_cache._ageing)))
    monkeypatch.setattr(key_cache, "_ageing", set())
    assert use(api) == 200
    assert use(api) == 200
    assert asked == [], "it is fresh"
    ends = key_cache.KEYS.cache[key.row.key_hash][0]
    moment = ends - key_cache.PROCESS_SECONDS + key_cache.REFRESHED_AFTER_SECONDS + 0.1
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    assert use(api) == 200
    assert asked == [{key.row.key_hash}]


def test_without_the_database_what_is_remembered_runs_out(
    key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_cache.remember_many([key.row.key_hash])
    ends = key_cache.KEYS.cache[key.row.key_hash][0]

    def away(_: Any) -> None:
        raise OperationalError

    monkeypatch.setattr(key_cache, "remember_many", away)
    key_cache._ageing.add(key.row.key_hash)
    key_cache._refresh_ageing()
    assert key_cache.KEYS.cache[key.row.key_hash][0] == ends
    monkeypatch.setattr(time, "monotonic", lambda: ends)
    assert key_cache.recall(key.row.key_hash) is None


def test_reconcile_rewrites_what_differs_and_reports_it(
    tenant: Tenant, key: api_keys.NewKey, empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> None:
        raise redis.exceptions.ConnectionError

    key_cache_repair.reconcile()
    assert key_cache_repair.reconcile() == 0, "nothing differs after a run"
    revoked = api_keys.create(name="old", environment="live", tenant=tenant)
    key_cache.write_key(revoked.row)
    ApiKey.objects.filter(pk=revoked.row.id).update(revoked_at=now())
    empty_valkey.delete(f"key:{key.row.key_hash}")
    Tenant.objects.filter(pk=tenant.id).update(status="suspended")
    assert key_cache_repair.reconcile() == 3
    report: dict[str, Any] = admin_health.report()["kv_reconcile"]
    assert report["keys_rewritten"] == 3
    assert report["last_run_at"].endswith("Z")
    with monkeypatch.context() as patched:
        patched.setattr(key_cache_repair, "valkey", unreachable)
        assert admin_health.report()["kv_reconcile"] == {"last_run_at": None, "keys_rewritten": 0}
    facts = key_cache.key_by_hash(revoked.row.key_hash)
    assert facts is not None
    assert facts.revoked


def test_without_the_database_reconcile_fails(key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: str) -> None:
        raise OperationalError

    key_cache_repair.reconcile()
    before = admin_health.report()["kv_reconcile"]
    monkeypatch.setattr(key_cache_repair, "read_key", away)
    with pytest.raises(OperationalError):
        key_cache_repair.reconcile()
    assert admin_health.report()["kv_reconcile"] == before, "it did not run"


def test_strangers_with_many_keys_fill_no_memory(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_cache, "PROCESS_ENTRIES", 2)
    for number in range(6):
        row = api_keys.create(name=str(number), environment="live", tenant=tenant).row
        for key_hash in (row.key_hash, f"{number:064x}"):
            key_cache.key_by_hash(key_hash)
        api_keys.record_use(row.pk)
    remembered = (key_cache.KEYS.cache, key_cache._absent, api_keys._noted)
    assert [0 < len(each) <= 3 for each in remembered] == [True, True, True]


NAIVE = b"2020-01-01T00:00:00"


@pytest.mark.parametrize("trouble", ["row", "another type", "name", "naive time", "cached row"])
def test_what_cannot_be_read_stops_no_other(
    tenant: Tenant, empty_valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A time in one row cannot be represented in Python, or one entry in Valkey is corrupt. All others are compared."""
    # The three keys that are not revoked are read in one chunk, in any order.
    monkeypatch.setattr(key_cache_repair, "CHUNK", 3)
    made = [api_keys.create(name=str(n), environment="live", tenant=tenant).row for n in range(5)]
    entries = [f"key:{row.key_hash}" for row in made]
    key_cache_repair.reconcile()
    spoilt = entries[2]
    if trouble in {"row", "cached row"}:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE tenants_apikey SET expires_at = 'infinity' WHERE id = %s", [made[2].id])
    if trouble == "row":
        empty_valkey.delete(spoilt)
    elif trouble == "another type":
        empty_valkey.delete(spoilt)
        empty_valkey.rpush(spoilt, "x")
    elif trouble == "name":
        empty_valkey.set(b"key:\xff\x00", bytes(empty_valkey.get(spoilt) or b""))  # type: ignore[arg-type]
    elif trouble == "naive time":
        entry = bytes(empty_valkey.get(spoilt) or b"")  # type: ignore[arg-type]
        for name in (spoilt, "key:of-no-row"):
            empty_valkey.set(name, entry.replace(b'"expires_at":null', b'"expires_at":"%b"' % NAIVE))
    revoked = [made[0], made[4]]
    ApiKey.objects.filter(pk__in=[row.id for row in revoked]).update(revoked_at=now())
    empty_valkey.delete(entries[1], entries[3])

    key_cache_repair.reconcile()

    assert all(empty_valkey.get(entries[n]) for n in (1, 3)), "the absent ones are written"
    for row in revoked:
        facts = key_cache.KEYS.parse(bytes(empty_valkey.get(f"key:{row.key_hash}") or b""), max_age=None)  # type: ignore[arg-type]
        assert facts is not None
        assert facts.revoked
    if trouble in {"another type", "naive time"}:
        assert key_cache.KEYS.parse(bytes(empty_valkey.get(spoilt) or b""), max_age=None)  # type: ignore[arg-type]
    assert empty_valkey.get(b"key:\xff\x00") is None


def test_nothing_is_mirrored_before_its_commit(
    tenant: Tenant, key: api_keys.NewKey, empty_valkey: redis.Redis
) -> None:
    """The transaction of this test never commits, so no change may reach Valkey."""
    keys = ApiKey.objects.for_tenant(tenant.id)
    old = api_keys.create(name="old", environment="live", tenant=tenant)
    api_keys.rotate(keys=keys, key_id=old.row.id)
    api_keys.revoke(keys=keys, key_id=key.row.id)
    tenant_status.suspend(tenant_id=tenant.id, reason="admin")
    assert empty_valkey.keys("key:*") == []
    assert empty_valkey.keys("tenant:*") == []
