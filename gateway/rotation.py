"""Rotation of the encryption keys: everything stored under an older key is encrypted anew under the first one.

To rotate: put the new key in front of `ENCRYPTION_KEYS` everywhere, run `manage.py rotate_encryption`, then take the
old key out. Safe while the service runs and when run twice: a row that changes meanwhile keeps its newer value.
"""

from collections.abc import Callable, Iterator

from django.apps import apps
from django.db import connection

from gateway.encryption import EncryptedTextField, rotated

BATCH = 500

Rotation = Callable[[], int]
_rotations: list[Rotation] = []


def register(rotation: Rotation) -> Rotation:
    """Add a function that rotates ciphertext kept elsewhere than in an EncryptedTextField; it returns how many."""
    _rotations.append(rotation)
    return rotation


def rotate_all() -> int:
    """Re-encrypt every secret of every model. Returns how many changed. Raises InvalidToken when no key opens one."""
    columns = sum(rotate_column(field) for field in encrypted_fields())
    return columns + sum(rotation() for rotation in _rotations)


def encrypted_fields() -> Iterator[EncryptedTextField]:
    """Every encrypted column of every model."""
    for model in apps.get_models():
        for field in model._meta.local_fields:
            if isinstance(field, EncryptedTextField):
                yield field


def rotate_column(field: EncryptedTextField) -> int:
    """Re-encrypt one column, in batches along the primary key, each row only if it is still as it was read."""
    quote = connection.ops.quote_name
    meta = field.model._meta
    assert meta.pk is not None  # noqa: S101 - every model has a primary key
    table, key, column = quote(meta.db_table), quote(str(meta.pk.column)), quote(str(field.column))
    select = f"SELECT {key}, {column} FROM {table} WHERE {column} <> ''"  # noqa: S608 - names of models
    update = f"UPDATE {table} SET {column} = %s WHERE {key} = %s AND {column} = %s"  # noqa: S608
    changed, last = 0, None
    with connection.cursor() as cursor:
        while True:
            after = f" AND {key} > %s" if last is not None else ""
            cursor.execute(
                f"{select}{after} ORDER BY {key} LIMIT {BATCH}", [last] if last is not None else []
            )
            rows = cursor.fetchall()
            if not rows:
                return changed
            last = rows[-1][0]
            for pk, ciphertext in rows:
                if fresh := rotated(ciphertext, purpose=field.purpose):
                    cursor.execute(update, [fresh, pk, ciphertext])
                    changed += cursor.rowcount
