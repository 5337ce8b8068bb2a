"""The key mirror in Valkey: facts of keys and tenants for the hot path, without the database.

`key:<sha256>` and `tenant:<id>` hold facts with the time at which they were read. A reader trusts an entry for
`FRESH_SECONDS` and then reads the database again. Each process also caches entries for `PROCESS_SECONDS`. So a
revocation, suspension or approval reaches every process within the sum of both times, even when Valkey missed the
write. `key_cache_repair.py` repairs entries that differ from the database (decision "Authentication"). While Valkey is
available, every process is notified of a change and drops its cached entry, so the next call uses the new state.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import UUID

import orjson
import structlog
from django.db import connection

from gateway.api import authentication
from gateway.api.authentication import TenantFacts
from gateway.clock import now
from gateway.database.transactions import error_fields, is_outage
from gateway.roles import KeyScope, known_scopes
from gateway.valkey.channel import Channel
from gateway.valkey.connection import VALKEY_UNAVAILABLE, quick_valkey, valkey
from gateway.valkey.write_behind import Debounced
from tenants.models import ApiKey, Tenant

log = structlog.get_logger(__name__)

FRESH_SECONDS = 5.0
PROCESS_SECONDS = 4.0
REFRESHED_AFTER_SECONDS = 2.0
"""The age from which a cached entry in use is refreshed in the background, together with other entries."""
REFRESH_EVERY_SECONDS = 1.0
PROCESS_ENTRIES = 10_000
EXPIRY_SECONDS = 300
"""Expiry of an entry in Valkey that is not refreshed."""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The facts of a key that a call needs: its owner, environment, expiry, scopes and numbers."""

    id: UUID
    tenant_id: UUID | None
    app_id: UUID | None
    environment: str
    expires_at: datetime | None
    revoked: bool
    scopes: frozenset[KeyScope]
    phone_number_ids: frozenset[str] | None

    @property
    def usable(self) -> bool:
        """Whether the key is neither revoked nor expired now."""
        return not self.revoked and (self.expires_at is None or self.expires_at > now())


Facts = TypeVar("Facts", KeyFacts, TenantFacts)


class Mirror(Generic[Facts]):
    """One kind of entry, looked up in the process cache, then in Valkey, then in the database."""

    def __init__(
        self,
        prefix: str,
        read: Callable[[str], Facts | None],
        build: Callable[[dict[str, Any]], Facts],
    ) -> None:
        self.prefix = prefix
        self.read: Callable[[str], Facts | None] = read
        self.build: Callable[[dict[str, Any]], Facts] = build
        self.cache: dict[str, tuple[float, Facts | None]] = {}
        self.changes = 0
        """The number of changes that this process has received. Facts that were read before their entry's last change
        are out of date.
        """
        self._changed: dict[str, int] = {}
        """For each entry, the value of `changes` after its last change. `_others_changed` is this value for all entries
        that are not in the dictionary.
        """
        self._others_changed = 0
        self.lock = Lock()

    def recall(self, name: str) -> Facts | None:
        """The facts of an entry from the process cache. None when they are missing or too old."""
        cached = self.cache.get(name)
        return cached[1] if cached is not None and cached[0] > time.monotonic() else None

    def is_ageing(self, name: str) -> bool:
        """Whether a cached entry is due for a refresh before it expires."""
        cached = self.cache.get(name)
        return cached is not None and (
            cached[0] - time.monotonic() < PROCESS_SECONDS - REFRESHED_AFTER_SECONDS
        )

    def get(self, name: str) -> Facts | None:
        recalled = self.recall(name)
        if recalled is not None:
            return recalled
        changes = self.changes
        facts = self._from_valkey(name)
        if facts is None:
            read_at = time.time()
            facts = self.read(name)
            if facts is not None and not self._changed_since(changes, name):
                self.put(name, facts, read_at=read_at, quick=True)
        if facts is not None:
            self.remember(name, facts, read_after=changes)
        return facts

    def put(self, name: str, facts: Facts, *, read_at: float, quick: bool = False) -> None:
        """Write an entry to Valkey. An unavailable Valkey raises nothing, because readers fall back to the database.

        `read_at` is a time before the facts were read, so that no reader trusts them for longer than `FRESH_SECONDS`.
        With `quick`, the write is left out while Valkey hangs. A change of an entry waits for Valkey.
        """
        entry = orjson.dumps({"as_of": read_at, **asdict(facts)}, default=list)
        try:
            client = quick_valkey() if quick else valkey()
            client.set(self.prefix + name, entry, ex=EXPIRY_SECONDS)
        except VALKEY_UNAVAILABLE as error:
            log.warning("mirror_write_missed", error=type(error).__name__)

    def _from_valkey(self, name: str) -> Facts | None:
        try:
            entry = quick_valkey().get(self.prefix + name)
        except VALKEY_UNAVAILABLE as error:
            log.warning("mirror_read_missed", error=type(error).__name__)
            return None
        if entry is None:
            return None
        return self.parse(entry, max_age=FRESH_SECONDS)

    def parse(self, entry: bytes, *, max_age: float | None) -> Facts | None:
        """The facts in an entry. None when the entry is older than `max_age` seconds or unreadable."""
        try:
            fields = orjson.loads(entry)
            age = time.time() - fields.pop("as_of")
            if max_age is not None and not -1 <= age <= max_age:
                return None
            return self.build(fields)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def replace(self, name: str, facts: Facts) -> None:
        """Write a changed entry, and invalidate the previous one in every process."""
        self.put(name, facts, read_at=time.time())
        self.remove(name)
        CHANGES.send(self.prefix + name)

    def remember(self, name: str, facts: Facts, *, read_after: int) -> None:
        """Cache facts for `PROCESS_SECONDS`, unless their entry changed after they were read.

        `read_after` is the value of `changes` before the read.
        """
        CHANGES.listen()
        with self.lock:
            if self._changed_since(read_after, name):
                return
            if len(self.cache) >= PROCESS_ENTRIES:
                self.cache.clear()
            self.cache[name] = (time.monotonic() + PROCESS_SECONDS, facts)

    def remove(self, name: str | None = None) -> None:
        """Drop one entry from the process cache, or all of them."""
        with self.lock:
            self.changes += 1
            if name is None or len(self._changed) >= PROCESS_ENTRIES:
                self._changed.clear()
                self._others_changed = self.changes
            else:
                self._changed[name] = self.changes
            if name is None:
                self.cache.clear()
            else:
                self.cache.pop(name, None)

    def _changed_since(self, changes: int, name: str) -> bool:
        return self._changed.get(name, self._others_changed) > changes


def _uuid(value: str | None) -> UUID | None:
    return UUID(value) if value else None


def _build_key(fields: dict[str, Any]) -> KeyFacts:
    expires = datetime.fromisoformat(fields["expires_at"]) if fields["expires_at"] else None
    if expires is not None and expires.tzinfo is None:
        raise ValueError(expires)
    return KeyFacts(
        UUID(fields["id"]),
        _uuid(fields["tenant_id"]),
        _uuid(fields["app_id"]),
        fields["environment"],
        expires,
        fields["revoked"],
        # An entry of an older version has no scopes. The KeyError makes the caller read the database.
        known_scopes(fields["scopes"]),
        _numbers(fields["phone_number_ids"]),
    )


def _numbers(ids: Collection[str] | None) -> frozenset[str] | None:
    return None if ids is None else frozenset(ids)


def _build_tenant(fields: dict[str, Any]) -> TenantFacts:
    return TenantFacts(UUID(fields["id"]), fields["status"], fields["sandbox"], _uuid(fields["app_id"]))


def key_facts(key: ApiKey) -> KeyFacts:
    """The facts of a key's row."""
    return KeyFacts(
        key.id,
        key.tenant_id,
        key.app_id,
        key.environment,
        key.expires_at,
        key.revoked_at is not None,
        known_scopes(key.scopes),
        _numbers(key.phone_number_ids),
    )


def tenant_facts(tenant: Tenant) -> TenantFacts:
    """The facts of a tenant's row."""
    return TenantFacts(tenant.id, tenant.status, tenant.sandbox, tenant.app_id)


def read_key(key_hash: str) -> KeyFacts | None:
    """Read the facts of a key from the database. None for an unknown key."""
    key = ApiKey.objects.filter(key_hash=key_hash).first()
    return key_facts(key) if key else None


def _read_tenant(tenant_id: str) -> TenantFacts | None:
    tenant = Tenant.objects.filter(pk=tenant_id).first()
    return tenant_facts(tenant) if tenant else None


KEYS = Mirror[KeyFacts]("key:", read_key, _build_key)
TENANTS = Mirror[TenantFacts]("tenant:", _read_tenant, _build_tenant)


def key_by_hash(key_hash: str) -> KeyFacts | None:
    """The facts of the key with this SHA-256 (hex), from the caches or the database. None for an unknown key.

    The result for an unknown key is cached too, so repeated calls with it cost no look-up.
    """
    if is_absent(key_hash):
        return None
    facts = KEYS.get(key_hash)
    if facts is None:
        if len(_absent) >= PROCESS_ENTRIES:
            _absent.clear()
        _absent[key_hash] = time.monotonic() + ABSENT_SECONDS
    else:
        _record_verified(key_hash, facts)
    return facts


def _record_verified(key_hash: str, facts: KeyFacts) -> None:
    if facts.usable:
        authentication.remember_credential(key_hash)
    else:
        authentication.drop_credential(key_hash)


ABSENT_SECONDS = 10.0
"""How long a process caches that a key is unknown. Keys are random, so this cannot affect a key that is created
later.
"""
_absent: dict[str, float] = {}


def is_absent(key_hash: str) -> bool:
    """Whether a recent look-up did not find the key."""
    return _absent.get(key_hash, 0.0) > time.monotonic()


def tenant_by_id(tenant_id: UUID) -> TenantFacts | None:
    """The facts of a tenant. None for an unknown tenant."""
    return TENANTS.get(str(tenant_id))


def remember_many(key_hashes: Collection[str]) -> None:
    """Read these keys and their tenants from the database into the process cache, with one statement."""
    keys_changes, tenants_changes = KEYS.changes, TENANTS.changes
    for key in ApiKey.objects.filter(key_hash__in=key_hashes).select_related("tenant"):
        facts = key_facts(key)
        _record_verified(key.key_hash, facts)
        KEYS.remember(key.key_hash, facts, read_after=keys_changes)
        if key.tenant is not None:
            TENANTS.remember(str(key.tenant.id), tenant_facts(key.tenant), read_after=tenants_changes)


def recall(key_hash: str) -> tuple[KeyFacts, TenantFacts] | None:
    """A tenant's key and its tenant from the process cache. None when the key or the tenant needs a look-up.

    A background thread soon refreshes entries that are about to expire.
    """
    key = KEYS.recall(key_hash)
    if key is None or key.tenant_id is None:
        return None
    tenant = TENANTS.recall(str(key.tenant_id))
    if tenant is None:
        return None
    if KEYS.is_ageing(key_hash) or TENANTS.is_ageing(str(tenant.id)):
        with _ageing_lock:
            _ageing.add(key_hash)
        _refreshing.ask()
    return key, tenant


_ageing: set[str] = set()
_ageing_lock = Lock()


def _refresh_ageing() -> None:
    """Refresh ageing entries. When the database is unavailable, the entries expire at their normal time."""
    with _ageing_lock:
        ageing = list(_ageing)
        _ageing.clear()
    try:
        remember_many(ageing)
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("keys_not_refreshed", keys=len(ageing), **error_fields(error))
    finally:
        connection.close()


_refreshing = Debounced(_refresh_ageing, seconds=REFRESH_EVERY_SECONDS, collects=True)


def write_key(key: ApiKey) -> None:
    """Mirror a key after the commit that changed it."""
    _absent.pop(key.key_hash, None)
    authentication.drop_credential(key.key_hash)
    KEYS.replace(key.key_hash, key_facts(key))


def write_tenant(tenant: Tenant) -> None:
    """Mirror a tenant after the commit that changed it."""
    TENANTS.replace(str(tenant.id), tenant_facts(tenant))


def clear_process_cache() -> None:
    """Empty the process cache, because invalidations may have been missed."""
    _absent.clear()
    KEYS.remove()
    TENANTS.remove()


def _invalidate(entry: str) -> None:
    if entry.startswith(KEYS.prefix):
        authentication.drop_credential(entry.removeprefix(KEYS.prefix))
    for mirror in (KEYS, TENANTS):
        if entry.startswith(mirror.prefix):
            mirror.remove(entry.removeprefix(mirror.prefix))


CHANGES = Channel("mirror:changed", received=_invalidate, missed=clear_process_cache)
