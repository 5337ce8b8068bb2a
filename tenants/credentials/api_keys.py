"""API keys: create, rotate and revoke them, and record their last use. The only writer of `ApiKey`.

A key is `wb_live_` or `wb_test_` and 40 random base62 characters. Only the SHA-256 of a key is stored, so only one
response ever contains the full key (specification 5, decision "Names"). `rotate` and `revoke` receive the keys that
their caller may change: the keys of a tenant or an app, or all keys for staff. `create` and `rotate` receive a `Grant`:
no key can do more, or last longer, than its maker.
"""

import hashlib
import re
import secrets
import string
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Self
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from gateway.api.authentication import Caller
from gateway.api.errors import Conflict, Forbidden, InvalidRequest, NotFound
from gateway.clock import now
from gateway.roles import ALL_SCOPES, LIVE_SCOPES, NUMBER_SCOPES, KeyScope, known_scopes, scopes_of_role
from gateway.valkey import write_behind
from gateway.valkey.connection import valkey
from gateway.valkey.write_behind import PendingWrite
from tenants import audit, checklist
from tenants.credentials import key_cache
from tenants.models import ApiKey, PlatformApp, Tenant, User
from tenants.signals import sandbox_wanted

ROTATION_OVERLAP = timedelta(hours=24)
MOST_KEYS = 100
"""The maximum number of working keys of a tenant or platform app in one environment. A rotation may exceed this limit.
"""
MOST_NUMBERS = 100
"""The maximum number of phone numbers to which a key can be limited."""
LONGEST_NUMBER_ID = 64
PREFIX_CHARACTERS = 16
"""How many of the first characters of a key are stored and shown. A search with a whole key uses only these."""
_BASE62 = string.ascii_letters + string.digits
_FORM = re.compile(r"wb_(live|test)_[A-Za-z0-9]{40}")

LAST_USED = "keys:last_used"
LAST_USED_WRITING = "keys:last_used:writing"
RECORD_EVERY_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewKey:
    """The row of a new key together with the full key, which is shown once."""

    row: ApiKey
    key: str = field(repr=False)


def hash_of(key: str) -> str:
    """Return the stored hash of a key: SHA-256, hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def looks_like_key(text: str) -> bool:
    """Whether a text has the form of a key. A text of another form is never looked up."""
    return _FORM.fullmatch(text) is not None


def contains_key(text: str) -> bool:
    """Whether a text contains a key, for example in quotes."""
    return _FORM.search(text) is not None


@dataclass(frozen=True, slots=True)
class Grant:
    """The limits of what a maker may give to a key: scopes, numbers (None: all) and expiry (None: never)."""

    scopes: frozenset[KeyScope] = ALL_SCOPES
    phone_number_ids: frozenset[str] | None = None
    ends_at: datetime | None = None

    @classmethod
    def of_caller(cls, caller: Caller) -> Self:
        """The grant of an API caller: the rights of its key, or the scopes of the member's role."""
        if caller.kind == "console_user":
            return cls(scopes_of_role(caller.role or ""))
        return cls(caller.scopes, caller.phone_number_ids, caller.expires_at)

    def require_scopes(self, scopes: frozenset[KeyScope]) -> None:
        """Raise Forbidden for scopes beyond the grant."""
        if missing := sorted(scopes - self.scopes):
            raise Forbidden(
                f"You can give a key only scopes that you have; missing: {', '.join(missing)}.",
                hint="Leave them out, or use a key or a member that has them.",
                details={"scopes": missing},
            )

    def require_numbers(self, phone_number_ids: frozenset[str] | None) -> None:
        """Raise Forbidden for numbers beyond the grant. None means all numbers."""
        own = self.phone_number_ids
        if own is not None and (phone_number_ids is None or not phone_number_ids <= own):
            raise Forbidden(
                "A key cannot create or rotate one that reaches other numbers.",
                details={"phone_number_ids": sorted(own)},
            )

    def lasts_longer(self, moment: datetime | None) -> bool:
        """Whether a key that ends at `moment` (None: never) would last longer than its maker."""
        return self.ends_at is not None and (moment is None or moment > self.ends_at)

    def require_end(self, moment: datetime | None) -> None:
        """Raise Forbidden for a key that would last longer than its maker."""
        if self.lasts_longer(moment):
            raise Forbidden(
                "A key cannot create or rotate one that lasts longer than itself.",
                details={"expires_at": self.ends_at},
            )


EVERYTHING = Grant()


def possible_scopes(*, environment: str, shares: bool, is_limited: bool = False) -> frozenset[KeyScope]:
    """The scopes that a key can have. `shares` says that the tenant also has a live environment. `is_limited` says that
    the key is limited to numbers.
    """
    possible = NUMBER_SCOPES if is_limited else ALL_SCOPES
    return possible - LIVE_SCOPES if environment == ApiKey.Environment.TEST and shares else possible


def create(
    *,
    name: str,
    environment: str,
    tenant: Tenant | None = None,
    app: PlatformApp | None = None,
    scopes: Collection[str] | None = None,
    phone_number_ids: Collection[str] | None = None,
    expires_at: datetime | None = None,
    within: Grant = EVERYTHING,
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> NewKey:
    """Create a key of a tenant or of a platform app. Scopes, numbers and expiry that are None are taken from `within`.

    Raises Forbidden for more than `within` allows, InvalidRequest if there are no scopes or the key cannot have one of
    them, and Conflict at the limit of keys.
    """
    numbers = within.phone_number_ids if phone_number_ids is None else frozenset(phone_number_ids)
    within.require_numbers(numbers)
    if expires_at is None:
        expires_at = within.ends_at
    within.require_end(expires_at)
    possible = possible_scopes(
        environment=environment,
        shares=tenant is not None and not tenant.sandbox,
        is_limited=numbers is not None,
    )
    chosen = possible & within.scopes if scopes is None else known_scopes(scopes)
    within.require_scopes(chosen)
    if impossible := sorted(chosen - possible):
        kind = "A key that is limited to numbers" if numbers is not None else "A test key"
        raise InvalidRequest.of(scopes=f"{kind} cannot have: {', '.join(impossible)}.")
    if not chosen:
        raise InvalidRequest.of(scopes="Choose at least one.")
    row = ApiKey(
        tenant=tenant,
        app=app,
        name=name,
        environment=environment,
        scopes=sorted(chosen),
        phone_number_ids=None if numbers is None else sorted(numbers),
        expires_at=expires_at,
    )
    with transaction.atomic():
        _require_room(row)
        if tenant is not None:
            _require_maker(tenant.id, actor_user_id, acting_key_id)
        return _store(row, actor_user_id=actor_user_id, acting_key_id=acting_key_id)


def _require_room(row: ApiKey) -> None:
    """Raise Conflict when the owner of a new key already has the maximum number of keys. The owner's row is locked, so
    simultaneous calls wait.
    """
    if row.tenant_id is not None:
        Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=row.tenant_id)
        own = ApiKey.objects.for_tenant(row.tenant_id)
    else:
        assert row.app_id is not None  # noqa: S101 - a key is a tenant's or an app's
        PlatformApp.objects.select_for_update(no_key=True).get(pk=row.app_id)
        own = ApiKey.objects.for_app(row.app_id)
    if own.working().filter(environment=row.environment).count() >= MOST_KEYS:
        raise Conflict(
            f"There are {MOST_KEYS} {row.environment} keys, which is the maximum.",
            hint="Revoke the keys that nobody uses: GET /v1/api-keys shows when each was last used.",
            details={"limit": MOST_KEYS},
        )


def _require_maker(tenant_id: UUID, user_id: int | None, key_id: UUID | None) -> None:
    """Raise Forbidden when the maker of a key has left the team, or the key that makes it was revoked. A removal, which
    revokes keys too, waits for the tenant's lock that the caller holds.
    """
    makers = User.objects.filter(Q(tenant_id=tenant_id) | Q(is_staff=True), is_active=True)
    if user_id is not None and not makers.filter(pk=user_id).exists():
        raise Forbidden("You do not belong to this business any more.")
    if key_id is not None and not ApiKey.objects.working().filter(pk=key_id).exists():
        raise Forbidden("The key of this call was revoked.")


def made_by(*, tenant_id: UUID, user_id: int) -> QuerySet[ApiKey]:
    """A tenant's working keys whose secret a member could know: the keys that the member created, and all keys created
    with those keys, at any depth.
    """
    own = ApiKey.objects.for_tenant(tenant_id)
    makers = dict(own.values_list("pk", "created_by_key_id"))
    made = set(own.filter(created_by_user_id=user_id).values_list("pk", flat=True))
    while more := {key for key, maker in makers.items() if maker in made and key not in made}:
        made |= more
    return own.working().filter(pk__in=made)


def _store(row: ApiKey, *, actor_user_id: int | None, acting_key_id: UUID | None) -> NewKey:
    """Generate the secret of a key and store the key with an audit entry. The cache is updated after the commit."""
    key = f"wb_{row.environment}_" + "".join(secrets.choice(_BASE62) for _ in range(40))
    row.prefix, row.key_hash = key[:PREFIX_CHARACTERS], hash_of(key)
    row.created_by_user_id, row.created_by_key_id = actor_user_id, acting_key_id
    row.save(force_insert=True)
    old = row.replaces
    audit.record(
        action="api_key.create" if old is None else "api_key.rotate",
        target_type="api_key",
        target_id=row.id,
        tenant_id=row.tenant_id,
        actor_user_id=actor_user_id,
        acting_key_id=acting_key_id,
        details=_audit_details(row)
        | ({"replaces": str(old.id), "old_key_expires_at": old.expires_at} if old else {}),
    )
    if row.tenant_id is not None:
        checklist.mark(tenant_id=row.tenant_id, step="api_key_created")
        if row.environment == "test":
            sandbox_wanted.send(ApiKey, tenant_id=row.tenant_id)
    transaction.on_commit(lambda: key_cache.write_key(row))
    return NewKey(row, key)


def has_ended(key: ApiKey) -> bool:
    """Whether a key is revoked or expired."""
    return key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now())


def end_after_rotation(key: ApiKey) -> datetime:
    """The time at which the old key stops working if it is rotated now: in 24 hours, or at its expiry if that is
    earlier.
    """
    ends = now() + ROTATION_OVERLAP
    return ends if key.expires_at is None else min(key.expires_at, ends)


def own_end(key: ApiKey) -> datetime | None:
    """The expiry with which a key was created. None for never. A rotation shortens the expiry of the old key, but its
    newest replacement keeps the original expiry.
    """
    replacement: ApiKey | None = key
    while replacement is not None:
        key = replacement
        replacement = ApiKey.objects.filter(replaces=key).order_by("id").first()
    return key.expires_at


def rotate(
    *,
    keys: QuerySet[ApiKey],
    key_id: UUID,
    within: Grant = EVERYTHING,
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> NewKey:
    """Replace one of `keys`. Returns the new key. The old key works for another 24 hours, or until its expiry if that
    is earlier.

    The new key has the scopes, the numbers and the expiry of the old key. A key that was rotated before may rotate
    itself in its last 24 hours. The new key then expires together with the old key. Raises NotFound for a key outside
    of `keys`, Conflict for a revoked or expired key, and Forbidden for a key that can do more or lasts longer than
    `within` allows, and for a maker who has left the team meanwhile.
    """
    with transaction.atomic():
        tenant_id = keys.filter(pk=key_id).values_list("tenant_id", flat=True).first()
        if tenant_id is not None:
            Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant_id)
            _require_maker(tenant_id, actor_user_id, acting_key_id)
        old = _locked(keys, key_id)
        if has_ended(old):
            raise Conflict("A revoked or expired key cannot be rotated.")
        numbers, ends_at = old.phone_number_ids, own_end(old)
        within.require_scopes(known_scopes(old.scopes))
        within.require_numbers(None if numbers is None else frozenset(numbers))
        if old.id == acting_key_id and within.lasts_longer(ends_at):
            ends_at = within.ends_at
        within.require_end(ends_at)
        old.expires_at = end_after_rotation(old)
        old.save(update_fields=["expires_at"])
        transaction.on_commit(lambda: key_cache.write_key(old))
        row = ApiKey(
            tenant=old.tenant,
            app=old.app,
            name=old.name,
            environment=old.environment,
            scopes=old.scopes,
            phone_number_ids=numbers,
            expires_at=ends_at,
            replaces=old,
        )
        return _store(row, actor_user_id=actor_user_id, acting_key_id=acting_key_id)


def revoke(
    *,
    keys: QuerySet[ApiKey],
    key_id: UUID,
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> ApiKey:
    """Revoke one of `keys` now. A repeated call changes nothing. Raises NotFound for a key outside of `keys`."""
    with transaction.atomic():
        key = _locked(keys, key_id)
        if key.revoked_at is None:
            key.revoked_at = now()
            key.save(update_fields=["revoked_at"])
            audit.record(
                action="api_key.revoke",
                target_type="api_key",
                target_id=key.id,
                tenant_id=key.tenant_id,
                actor_user_id=actor_user_id,
                acting_key_id=acting_key_id,
                details=_audit_details(key),
            )
        transaction.on_commit(lambda: key_cache.write_key(key))
    return key


def _audit_details(key: ApiKey) -> dict[str, Any]:
    """Return a key's details for the audit log."""
    return {
        "name": key.name,
        "environment": key.environment,
        "prefix": key.prefix,
        "app_id": str(key.app_id) if key.app_id else None,
        "expires_at": key.expires_at,
        "scopes": key.scopes,
        "phone_number_ids": key.phone_number_ids,
    }


def _locked(keys: QuerySet[ApiKey], key_id: UUID) -> ApiKey:
    key = keys.select_for_update(of=("self",)).select_related("tenant", "app").filter(pk=key_id).first()
    if key is None:
        raise NotFound("There is no such API key.")
    return key


_noted: dict[UUID, float] = {}
_uses: dict[str, str] = {}
_noted_lock = Lock()


def record_use(key_id: UUID) -> None:
    """Record in Valkey that a key was used, at most once every few seconds in each process. The record is lost when
    Valkey is unavailable.

    Does no I/O: the use becomes a pending write.
    """
    moment = time.monotonic()
    if _noted.get(key_id, 0.0) > moment:
        return
    with _noted_lock:
        if len(_noted) > key_cache.PROCESS_ENTRIES:
            _noted.clear()
        _noted[key_id] = moment + RECORD_EVERY_SECONDS
        _uses[str(key_id)] = str(time.time())
    write_behind.flush_soon()


def _pending_writes() -> list[PendingWrite]:
    with _noted_lock:
        fields = [word for use in _uses.items() for word in use]
        _uses.clear()
    return [PendingWrite(("HSET", LAST_USED, *fields))] if fields else []


write_behind.register(_pending_writes)


def write_last_used() -> int:
    """Store the recorded uses in the database. Returns the number of keys.

    A key whose row is locked is skipped until its next use.

    The hash in Valkey is renamed first, so uses that arrive meanwhile wait for the next run. The next run also stores
    the hash of a run that died.
    """
    client = valkey()
    if not client.exists(LAST_USED_WRITING):
        if not client.exists(LAST_USED):
            return 0
        client.rename(LAST_USED, LAST_USED_WRITING)
    moments = client.hgetall(LAST_USED_WRITING)
    ids = [UUID(key_id.decode()) for key_id in moments]
    used = [datetime.fromtimestamp(float(moment), UTC) for moment in moments.values()]
    with connection.cursor() as cursor:
        # Looks up one row for each key that was used in the last minute.
        cursor.execute(
            "WITH free AS (SELECT id FROM tenants_apikey WHERE id = ANY(%s::uuid[]) FOR NO KEY UPDATE SKIP LOCKED) "
            "UPDATE tenants_apikey AS k SET last_used_at = greatest(k.last_used_at, used.at) "
            "FROM unnest(%s::uuid[], %s::timestamptz[]) AS used (id, at) JOIN free USING (id) WHERE k.id = used.id",
            [ids, ids, used],
        )
    client.delete(LAST_USED_WRITING)
    return len(ids)
