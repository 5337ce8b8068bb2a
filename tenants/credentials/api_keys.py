"""API keys: create, rotate, revoke, and when they were last used. The only writer of `ApiKey`.

A key is `wb_live_` or `wb_test_` and 40 random base62 characters. Only its SHA-256 is stored, so the full key is in one
answer and never again (specification 5) (decision "Names"). `rotate` and `revoke` take the keys that their caller may
change: a tenant's, an app's, or for staff all of them. `create` and `rotate` take what their caller may give (`Grant`):
no key is made that can more, or lasts longer, than who makes it.
"""

import hashlib
import re
import secrets
import string
import time
from collections.abc import Collection
from dataclasses import dataclass
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
"""Working keys of a tenant or platform app in one environment. A rotation is never refused for it."""
PREFIX_CHARACTERS = 16
"""Characters of a key that are stored and shown; a search with a whole key is cut to them."""
_BASE62 = string.ascii_letters + string.digits
_FORM = re.compile(r"wb_(live|test)_[A-Za-z0-9]{40}")

LAST_USED = "keys:last_used"
LAST_USED_WRITING = "keys:last_used:writing"
NOTE_EVERY_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key's row together with the full key, which is shown once."""

    row: ApiKey
    key: str


def hash_of(key: str) -> str:
    """Return the stored hash of a key: SHA-256, hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def looks_like_key(text: str) -> bool:
    """Whether a text has the form of a key; anything else needs no look-up."""
    return _FORM.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Grant:
    """Most that a maker may give to a key: scopes, numbers (None: all), and expiry."""

    scopes: frozenset[KeyScope] = ALL_SCOPES
    phone_number_ids: frozenset[str] | None = None
    ends_at: datetime | None = None

    @classmethod
    def of_caller(cls, caller: Caller) -> Self:
        """Return the most that the caller of an API request may give: a key its own, a member its role's."""
        if caller.kind == "console_user":
            return cls(scopes_of_role(caller.role or ""))
        return cls(caller.scopes, caller.phone_number_ids, caller.expires_at)

    def require_scopes(self, scopes: frozenset[KeyScope]) -> None:
        """Raise Forbidden for scopes that the maker may not give."""
        if missing := sorted(scopes - self.scopes):
            raise Forbidden(
                f"Whoever makes or rotates a key must have its scopes; missing: {', '.join(missing)}.",
                hint="Leave them out, or use a key or a member that has them.",
                details={"scopes": missing},
            )

    def require_numbers(self, phone_number_ids: frozenset[str] | None) -> None:
        """Raise Forbidden for a key that would reach other numbers than its maker; None reaches all."""
        own = self.phone_number_ids
        if own is not None and (phone_number_ids is None or not phone_number_ids <= own):
            raise Forbidden(
                "A key cannot make or rotate one that reaches other numbers.",
                details={"phone_number_ids": sorted(own)},
            )

    def lasts_longer(self, moment: datetime | None) -> bool:
        """Whether a key that ends at a moment (None: never) would last longer than its maker."""
        return self.ends_at is not None and (moment is None or moment > self.ends_at)

    def require_end(self, moment: datetime | None) -> None:
        """Raise Forbidden for a key that would last longer than its maker."""
        if self.lasts_longer(moment):
            raise Forbidden(
                "A key cannot make or rotate one that lasts longer than itself.",
                details={"expires_at": self.ends_at},
            )


EVERYTHING = Grant()


def possible_scopes(*, environment: str, shares: bool, is_limited: bool = False) -> frozenset[KeyScope]:
    """The scopes that a key can have. `shares`: its tenant has a live environment beside the sandbox."""
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
    """Make a key of a tenant or of a platform app. What is not chosen is as much as `within` gives.

    Raises Forbidden for more than that, InvalidRequest for scopes that such a key cannot have, Conflict at the limit.
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
        if tenant is not None and actor_user_id is not None:
            _require_maker(tenant.id, actor_user_id)
        return _store(row, actor_user_id=actor_user_id, acting_key_id=acting_key_id)


def _require_room(row: ApiKey) -> None:
    """Require that the owner of a new key has not its most already. Its row is locked: of two at once one waits."""
    if row.tenant_id is not None:
        Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=row.tenant_id)
        own = ApiKey.objects.for_tenant(row.tenant_id)
    else:
        assert row.app_id is not None  # noqa: S101 - a key is a tenant's or an app's
        PlatformApp.objects.select_for_update(no_key=True).get(pk=row.app_id)
        own = ApiKey.objects.for_app(row.app_id)
    if own.working().filter(environment=row.environment).count() >= MOST_KEYS:
        raise Conflict(
            f"There are {MOST_KEYS} {row.environment} keys, the most that are possible.",
            hint="Revoke the keys that nobody uses: GET /v1/api-keys shows when each was last used.",
            details={"limit": MOST_KEYS},
        )


def _require_maker(tenant_id: UUID, user_id: int) -> None:
    """Require that who makes a key was not removed from the team meanwhile: a removal locks the tenant too."""
    makers = User.objects.filter(Q(tenant_id=tenant_id) | Q(is_staff=True), pk=user_id, is_active=True)
    if not makers.exists():
        raise Forbidden("You do not belong to this business any more.")


def made_by(*, tenant_id: UUID, user_id: int) -> QuerySet[ApiKey]:
    """A tenant's working keys that a member made, and those that were made with them: the member may know them."""
    own = ApiKey.objects.for_tenant(tenant_id)
    makers = dict(own.values_list("pk", "created_by_key_id"))
    made = set(own.filter(created_by_user_id=user_id).values_list("pk", flat=True))
    while more := {key for key, maker in makers.items() if maker in made and key not in made}:
        made |= more
    return own.working().filter(pk__in=made)


def _store(row: ApiKey, *, actor_user_id: int | None, acting_key_id: UUID | None) -> NewKey:
    """Give a key its secret and its maker, and store it with an audit entry. The cache gets it after the commit."""
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


def end_after_rotation(key: ApiKey) -> datetime:
    """When a key ends that is rotated now: after 24 hours, or at its earlier end."""
    ends = now() + ROTATION_OVERLAP
    return ends if key.expires_at is None else min(key.expires_at, ends)


def own_end(key: ApiKey) -> datetime | None:
    """The end that a key was made with, which a rotation hands on to the key in its place."""
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
    """A new key in the place of one of `keys`, which works for 24 hours more (or to its earlier end).

    The new key has the scopes, numbers and end of the old one; a key that rotates itself in its last 24 hours gets one
    that ends with it. Raises NotFound for a key outside of `keys`, Forbidden for one that can more or lasts longer than
    `within` gives, Conflict for one that is revoked or expired.
    """
    with transaction.atomic():
        old = _locked(keys, key_id)
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now()):
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
    """End one of `keys` now; a second call answers the same. Raises NotFound for a key outside of `keys`."""
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


def note_used(key_id: UUID) -> None:
    """Have Valkey remember that a key was used, at most every few seconds a process; lost without Valkey.

    Does no I/O: it is written with the other pending writes.
    """
    moment = time.monotonic()
    if _noted.get(key_id, 0.0) > moment:
        return
    with _noted_lock:
        if len(_noted) > key_cache.PROCESS_ENTRIES:
            _noted.clear()
        _noted[key_id] = moment + NOTE_EVERY_SECONDS
        _uses[str(key_id)] = str(time.time())
    write_behind.flush_soon()


def _pending_writes() -> list[PendingWrite]:
    with _noted_lock:
        fields = [word for use in _uses.items() for word in use]
        _uses.clear()
    return [PendingWrite(("HSET", LAST_USED, *fields))] if fields else []


write_behind.register(_pending_writes)


def write_last_used() -> int:
    """Bring the collected moments into the database; returns how many keys were used.

    A key whose row is held is passed over; its next use is written.

    The hash is renamed first, so what arrives meanwhile is kept for the next run, and a run that died leaves its
    hash to be merged by the next.
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
        # One index look-up of the primary key for each key used in the last minute.
        cursor.execute(
            "WITH free AS (SELECT id FROM tenants_apikey WHERE id = ANY(%s::uuid[]) FOR NO KEY UPDATE SKIP LOCKED) "
            "UPDATE tenants_apikey AS k SET last_used_at = greatest(k.last_used_at, used.at) "
            "FROM unnest(%s::uuid[], %s::timestamptz[]) AS used (id, at) JOIN free USING (id) WHERE k.id = used.id",
            [ids, ids, used],
        )
    client.delete(LAST_USED_WRITING)
    return len(ids)
