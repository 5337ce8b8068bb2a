"""Encryption of stored secrets, and rotation of the encryption keys."""

import base64
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Self

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.apps import apps
from django.conf import settings
from django.db import connection, models
from django.db.models.query_utils import DeferredAttribute

# --- Encryption of secrets that must be readable again: Meta's tokens, and PINs (Fernet keys in `ENCRYPTION_KEYS`).
#
# The first key encrypts, and all keys decrypt. `manage.py rotate_encryption` re-encrypts with the first key. Each
# purpose has its own key, derived by HKDF, so a ciphertext copied into another column cannot be decrypted there.


@cache
def _cipher(purpose: str, keys: tuple[str, ...]) -> MultiFernet:
    def derive(key: str) -> Fernet:
        secret = base64.urlsafe_b64decode(key)
        derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.encode()).derive(secret)
        return Fernet(base64.urlsafe_b64encode(derived))

    return MultiFernet([derive(key) for key in keys])


def encrypt(text: str, *, purpose: str) -> str:
    """Encrypt a secret for a text column."""
    return _cipher(purpose, tuple(settings.ENCRYPTION_KEYS)).encrypt(text.encode()).decode()


def decrypt(ciphertext: str, *, purpose: str) -> str:
    """Decrypt a secret. Raises `cryptography.fernet.InvalidToken` when no key can."""
    return _decrypted(ciphertext, purpose, tuple(settings.ENCRYPTION_KEYS))


# Cached, because every send and every delivery needs the same few secrets.
@lru_cache(maxsize=4096)
def _decrypted(ciphertext: str, purpose: str, keys: tuple[str, ...]) -> str:
    return _cipher(purpose, keys).decrypt(ciphertext.encode()).decode()


def rotated(ciphertext: str, *, purpose: str) -> str | None:
    """The ciphertext re-encrypted with the first key. None if it is encrypted with that key already. Raises
    InvalidToken when no key can decrypt it.
    """
    keys = tuple(settings.ENCRYPTION_KEYS)
    try:
        _cipher(purpose, keys[:1]).decrypt(ciphertext.encode())
    except InvalidToken:
        return _cipher(purpose, keys).rotate(ciphertext.encode()).decode()
    return None


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A value that no key can decrypt, as read from the database."""

    ciphertext: str = field(repr=False)


class _Secret(DeferredAttribute):
    """The attribute of an encrypted column. Reading it raises InvalidToken for a value that no key can decrypt. Loading
    the row never does.
    """

    field: "EncryptedTextField"

    def __get__(self, instance: models.Model | None, cls: type[models.Model] | None = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, _Unreadable):
            raise InvalidToken("No key of ENCRYPTION_KEYS decrypts this secret.")
        return value

    def __set__(self, instance: models.Model, value: str | None) -> None:
        instance.__dict__[self.field.attname] = value


SALT_BYTES = 16
_NONCE_BYTES = 12


class FileCipher:
    """AES-GCM for the parts of one short-lived file, with its own key. Much cheaper than Fernet.

    A key is derived from the file's salt and each of `ENCRYPTION_KEYS`. The first key encrypts, and all keys decrypt.
    """

    def __init__(self, salt: bytes, *, purpose: str) -> None:
        self.salt = salt
        self._ciphers = [
            AESGCM(
                HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=purpose.encode()).derive(
                    base64.urlsafe_b64decode(key)
                )
            )
            for key in settings.ENCRYPTION_KEYS
        ]

    @classmethod
    def new(cls, *, purpose: str) -> Self:
        """A cipher for a new file."""
        return cls(os.urandom(SALT_BYTES), purpose=purpose)

    def encrypt(self, content: bytes) -> bytes:
        """Encrypt a part of the file."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, content, None)

    def decrypt(self, part: bytes) -> bytes:
        """Decrypt a part. Raises `cryptography.exceptions.InvalidTag` when no key can."""
        nonce, ciphertext = part[:_NONCE_BYTES], part[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, ciphertext, None)
            except InvalidTag:
                continue
        raise InvalidTag


class EncryptedTextField(models.TextField):  # type: ignore[type-arg]
    """A text column that stores ciphertext and reads as the secret. Empty and NULL are stored unchanged.

    A row whose secret no key can decrypt can still be listed, changed and deleted. Only reading the secret's attribute
    raises `cryptography.fernet.InvalidToken`. Saving the row keeps the ciphertext.
    """

    descriptor_class = _Secret

    def __init__(self, *args: Any, purpose: str, **kwargs: Any) -> None:
        self.purpose = purpose
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        return name, path, list(args), {**kwargs, "purpose": self.purpose}

    def from_db_value(self, value: str | None, *_: Any) -> "str | _Unreadable | None":
        try:
            return decrypt(value, purpose=self.purpose) if value else value
        except InvalidToken:
            return _Unreadable(value or "")

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        return model_instance.__dict__[self.attname]

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, _Unreadable):
            return value.ciphertext
        return encrypt(value, purpose=self.purpose) if value else value


# --- Rotation of the encryption keys: everything encrypted with an older key is re-encrypted with the first key.
#
# To rotate: put the new key in front of `ENCRYPTION_KEYS` everywhere, run `manage.py rotate_encryption`, then remove
# the old key. The command may run while the service runs, and may be repeated. A row that changes meanwhile keeps its
# newer value.

log = structlog.get_logger(__name__)

BATCH = 500

Rotation = Callable[[], tuple[int, int]]
_rotations: list[Rotation] = []


def register(rotation: Rotation) -> Rotation:
    """Add a function that rotates ciphertext outside of EncryptedTextField columns. It returns what `rotate_column`
    returns, and logs secrets that no key can decrypt with `log_unreadable`.
    """
    _rotations.append(rotation)
    return rotation


def rotate_all() -> int:
    """Re-encrypt every secret of every model. Returns how many changed.

    A secret that no key can decrypt is logged and left unchanged, and InvalidToken is raised at the end. The older keys
    must stay until such a secret is repaired.
    """
    counts = [rotate_column(field) for field in encrypted_fields()] + [rotation() for rotation in _rotations]
    changed = sum(changed for changed, _ in counts)
    if unreadable := sum(unreadable for _, unreadable in counts):
        raise InvalidToken(
            f"{changed} secrets re-encrypted; no key decrypts {unreadable} others (see the log)."
        )
    return changed


def log_unreadable(*, table: str, column: str, key: object) -> None:
    """Log a secret that no key can decrypt. The operator finds it by its table, column and primary key."""
    log.error("secret_unreadable", table=table, column=column, key=str(key))


def encrypted_fields() -> Iterator[EncryptedTextField]:
    """All encrypted columns of all models."""
    for model in apps.get_models():
        for column in model._meta.local_fields:
            if isinstance(column, EncryptedTextField):
                yield column


def rotate_column(field: EncryptedTextField) -> tuple[int, int]:
    """Re-encrypt one column, in batches along the primary key. Skip a row that has changed since it was read.

    Returns the number of changed rows, and the number of rows that cannot be decrypted by any key.
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
                    log_unreadable(table=meta.db_table, column=str(field.column), key=pk)
                    continue
                if fresh:
                    cursor.execute(update, [fresh, pk, ciphertext])
                    changed += cursor.rowcount
