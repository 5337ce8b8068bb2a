"""Rotation of the encryption keys: everything stored under an older key is encrypted anew under the first one.

To rotate: put the new key in front of `ENCRYPTION_KEYS` everywhere, run `manage.py rotate_encryption`, then take the
old key out. Safe while the service runs and when run twice: a row that changes meanwhile keeps its newer value.
"""

from collections.abc import Callable, Iterator

import structlog
from cryptography.fernet import InvalidToken
from django.apps import apps
from django.db import connection

from gateway.encryption.cipher import EncryptedTextField, rotated

log = structlog.get_logger(__name__)

BATCH = 500

Rotation = Callable[[], int]
_rotations: list[Rotation] = []


def register(rotation: Rotation) -> Rotation:
    """Add a function that rotates ciphertext kept elsewhere than in an EncryptedTextField; it returns how many."""
    _rotations.append(rotation)
    return rotation


def rotate_all() -> int:
    """Re-encrypt every secret of every model. Returns how many changed.

    A secret that no key opens is logged and left as it is. Raises InvalidToken at the end when there was one: the
    older keys must stay until it is repaired.
    """
    columns = [rotate_column(field) for field in encrypted_fields()]
    changed = sum(changed for changed, _ in columns) + sum(rotation() for rotation in _rotations)
    if unreadable := sum(unreadable for _, unreadable in columns):
        raise InvalidToken(
            f"{changed} secrets encrypted anew; no key opens {unreadable} others (see the log)."
        )
    return changed


def encrypted_fields() -> Iterator[EncryptedTextField]:
    """Every encrypted column of every model."""
    for model in apps.get_models():
        for field in model._meta.local_fields:
            if isinstance(field, EncryptedTextField):
                yield field


def rotate_column(field: EncryptedTextField) -> tuple[int, int]:
    """Re-encrypt one column, in batches along the primary key, each row only if it is still as it was read.

    Returns how many changed, and how many no key opens.
    """
    quote = connection.ops.quote_name
    meta = field.model._meta
    assert meta.pk is not None  # noqa: S101 - every model has a primary key
    table, key, column = quote(meta.db_table), quote(str(meta.pk.column)), quote(str(field.column))
    select = f"SELECT {key}, {column} FROM {table} WHERE {column} <> ''"  # noqa: S608 - names of models
    update = f"UPDATE {table} SET {column} = %s WHERE {key} = %s AND {column} = %s"  # noqa: S608
    changed, unreadable, last = 0, 0, None
    with connection.cursor() as cursor:
        while True:
            after = f" AND {key} > %s" if last is not None else ""
            cursor.execute(
                f"{select}{after} ORDER BY {key} LIMIT {BATCH}", [last] if last is not None else []
            )
            rows = cursor.fetchall()
            if not rows:
                return changed, unreadable
            last = rows[-1][0]
            for pk, ciphertext in rows:
                try:
                    fresh = rotated(ciphertext, purpose=field.purpose)
                except InvalidToken:
                    unreadable += 1
                    log.error("secret_unreadable", table=meta.db_table, column=field.column, key=str(pk))
                    continue
                if fresh:
                    cursor.execute(update, [fresh, pk, ciphertext])
                    changed += cursor.rowcount
