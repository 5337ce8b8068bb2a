"""API keys: create, rotate, revoke, and when they were last used. The only writer of `ApiKey`.

A key is `wb_live_` or `wb_test_` and 40 random base62 characters. Only its SHA-256 is stored, so the full key is in one
answer and never again (specification 5) (decision "Names"). `rotate` and `revoke` take the keys that their caller may
change: a tenant's, an app's, or for staff all of them.
"""

import hashlib
import re
import secrets
import string
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import QuerySet

from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from gateway.valkey import bookings
from gateway.valkey.bookings import Booking
from gateway.valkey.connection import valkey
from tenants import audit, checklist
from tenants.credentials import key_cache
from tenants.models import ApiKey, PlatformApp, Tenant

ROTATION_OVERLAP = timedelta(hours=24)
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
    """What is stored of a key: its SHA-256, hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def looks_like_key(text: str) -> bool:
    """Whether a text has the form of a key; anything else needs no look-up."""
    return _FORM.fullmatch(text) is not None


def create(
    *,
    name: str,
    environment: str,
    tenant: Tenant | None = None,
    app: PlatformApp | None = None,
    replaces: ApiKey | None = None,
    expires_at: datetime | None = None,
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> NewKey:
    """Make a key of a tenant or of a platform app, with its audit entry. The key cache gets it after the commit."""
    key = f"wb_{environment}_" + "".join(secrets.choice(_BASE62) for _ in range(40))
    with transaction.atomic():
        row = ApiKey.objects.create(
            tenant=tenant,
            app=app,
            name=name,
            environment=environment,
            prefix=key[:PREFIX_CHARACTERS],
            key_hash=hash_of(key),
            replaces=replaces,
            expires_at=expires_at,
        )
        audit.record(
            action="api_key.create" if replaces is None else "api_key.rotate",
            target_type="api_key",
            target_id=row.id,
            tenant_id=row.tenant_id,
            actor_user_id=actor_user_id,
            acting_key_id=acting_key_id,
            details=_told(row)
            | ({"replaces": str(replaces.id), "old_key_expires_at": replaces.expires_at} if replaces else {}),
        )
        if tenant is not None:
            checklist.mark(tenant_id=tenant.id, step="api_key_created")
        transaction.on_commit(lambda: key_cache.write_key(row))
    return NewKey(row, key)


def end_after_rotation(key: ApiKey) -> datetime:
    """When a key ends that is rotated now: after 24 hours, or at its earlier end."""
    ends = now() + ROTATION_OVERLAP
    return ends if key.expires_at is None else min(key.expires_at, ends)


def rotate(
    *,
    keys: QuerySet[ApiKey],
    key_id: UUID,
    actor_user_id: int | None = None,
    acting_key_id: UUID | None = None,
) -> NewKey:
    """A new key in the place of one of `keys`, which works for 24 hours more (or to its earlier end).

    Raises NotFound for a key outside of `keys`, Conflict for one that is revoked or expired.
    """
    with transaction.atomic():
        old = _locked(keys, key_id)
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now()):
            raise Conflict("A revoked or expired key cannot be rotated.")
        old.expires_at = end_after_rotation(old)
        old.save(update_fields=["expires_at"])
        transaction.on_commit(lambda: key_cache.write_key(old))
        return create(
            name=old.name,
            environment=old.environment,
            tenant=old.tenant,
            app=old.app,
            replaces=old,
            actor_user_id=actor_user_id,
            acting_key_id=acting_key_id,
        )


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
                details=_told(key),
            )
        transaction.on_commit(lambda: key_cache.write_key(key))
    return key


def _told(key: ApiKey) -> dict[str, Any]:
    """What the audit log says of a key."""
    return {
        "name": key.name,
        "environment": key.environment,
        "prefix": key.prefix,
        "app_id": str(key.app_id) if key.app_id else None,
        "expires_at": key.expires_at,
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

    Does no I/O: it is written with the other bookings.
    """
    moment = time.monotonic()
    if _noted.get(key_id, 0.0) > moment:
        return
    with _noted_lock:
        if len(_noted) > key_cache.PROCESS_ENTRIES:
            _noted.clear()
        _noted[key_id] = moment + NOTE_EVERY_SECONDS
        _uses[str(key_id)] = str(time.time())
    bookings.soon()


def _bookings() -> list[Booking]:
    with _noted_lock:
        fields = [word for use in _uses.items() for word in use]
        _uses.clear()
    return [Booking(("HSET", LAST_USED, *fields))] if fields else []


bookings.register(_bookings)


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
