"""Repair of the key mirror. Valkey's entries are compared with the database every minute, and entries that differ are
rewritten.

A row or an entry that cannot be read does not affect the others.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import redis
import structlog
from django.db import Error
from django.db.models import QuerySet
from rest_framework import serializers

from gateway.clock import isoformat, now
from gateway.database.transactions import concerns_all
from gateway.monitoring import admin_health, metrics
from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey
from tenants.credentials.key_cache import (
    EXPIRY_SECONDS,
    KEYS,
    TENANTS,
    Facts,
    Mirror,
    key_facts,
    read_key,
    tenant_facts,
)
from tenants.models import ApiKey, Tenant

log = structlog.get_logger(__name__)

STATE = "kv_reconcile"
CHUNK = 1000

Row = TypeVar("Row", ApiKey, Tenant)


def reconcile() -> int:
    """Compare the entries in Valkey with the database and rewrite those that differ. Returns how many were rewritten.

    All working keys and all tenants are compared. A missing entry is written, so an empty Valkey is filled again. An
    entry that shows a working key is corrected if the key no longer works. The state is stored for `/v1/admin/health`.
    Raises `gateway.valkey.connection.VALKEY_UNAVAILABLE`.
    """
    live = ApiKey.objects.filter(revoked_at__isnull=True).exclude(expires_at__lt=now())
    rewritten = _rewrite(KEYS, ((key.key_hash, key_facts(key)) for key in _readable(live)))
    rewritten += _rewrite(
        TENANTS, ((str(row.id), tenant_facts(row)) for row in _readable(Tenant.objects.all()))
    )
    rewritten += _drop_dead_keys()
    valkey().hset(STATE, mapping={"last_run_at": isoformat(now()), "keys_rewritten": rewritten})
    return rewritten


def _readable(rows: QuerySet[Row]) -> Iterator[Row]:
    """Read rows in chunks. If a chunk cannot be read, its rows are read one by one. So a value that Python cannot
    represent affects only its own row.
    """
    names = list(rows.values_list("pk", flat=True))
    for start in range(0, len(names), CHUNK):
        chunk = names[start : start + CHUNK]
        try:
            yield from list(rows.filter(pk__in=chunk))
        except Error as error:
            if concerns_all(error):
                raise
            for name in chunk:
                yield from _readable_alone(rows, name)


def _readable_alone(rows: QuerySet[Row], name: UUID) -> list[Row]:
    try:
        return list(rows.filter(pk=name))
    except Error as error:
        if concerns_all(error):
            raise
        log.exception("mirror_row_unreadable", table=rows.model._meta.db_table, row=str(name))
        return []


def _rewrite(mirror: Mirror[Facts], expected: Iterable[tuple[str, Facts]]) -> int:
    rewritten = 0
    for name, facts in expected:
        entry = _entry(mirror.prefix + name)
        if entry is None or mirror.parse(entry, max_age=None) != facts:
            # The row may have changed since its chunk was read, and its change may already be in Valkey.
            read_at = time.time()
            if (actual := mirror.read(name)) is not None:
                mirror.put(name, actual, read_at=read_at)
                rewritten += 1
        else:
            valkey().expire(mirror.prefix + name, EXPIRY_SECONDS)
    return rewritten


def _entry(name: str | bytes) -> bytes | None:
    """The bytes of an entry in Valkey. None if there is no entry. An entry whose type is not string is returned as
    empty bytes, which are unreadable.
    """
    try:
        entry: bytes | None = valkey().get(name)
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return b""
    return entry


def _drop_dead_keys() -> int:
    """Correct or remove entries that show a working key but differ from the database. Returns the number of entries."""
    rewritten = 0
    for name in valkey().scan_iter(match="key:*", count=1000):
        try:
            rewritten += _drop_if_dead(name)
        except Error as error:
            if concerns_all(error):
                raise
            log.exception("mirror_row_unreadable", table=ApiKey._meta.db_table)
    return rewritten


def _drop_if_dead(name: bytes) -> bool:
    entry = _entry(name)
    facts = KEYS.parse(entry, max_age=None) if entry else None
    if facts is None or not facts.usable:
        return False
    key_hash = name.decode("ascii", "replace").removeprefix("key:")
    read_at = time.time()
    actual = read_key(key_hash) if key_hash.isalnum() else None
    if actual == facts:
        return False
    if actual is None:
        valkey().delete(name)
    else:
        KEYS.put(key_hash, actual, read_at=read_at)
    return True


class MirrorHealthOut(serializers.Serializer[Any]):
    last_run_at = serializers.DateTimeField(allow_null=True)
    keys_rewritten = serializers.IntegerField()


@admin_health.register(kv_reconcile=MirrorHealthOut())
def _health() -> dict[str, Any]:
    try:
        state = valkey().hgetall(STATE)
    except VALKEY_UNAVAILABLE:
        state = {}
    return {
        "kv_reconcile": {
            "last_run_at": state[b"last_run_at"].decode() if state else None,
            "keys_rewritten": int(state[b"keys_rewritten"]) if state else 0,
        }
    }


def _age() -> float | None:
    last_run_at = _health()["kv_reconcile"]["last_run_at"]
    return (now() - datetime.fromisoformat(last_run_at)).total_seconds() if last_run_at else None


metrics.gauge(
    "gateway_periodic_tasks_age_seconds",
    "Seconds since beat's task of every minute last ran; missing before its first run and without Valkey.",
    _age,
    of_valkey=True,
)
