"""Encryption of what must be read back: upstream tokens and PINs (Fernet keys in `ENCRYPTION_KEYS`).

The first key encrypts, all decrypt; `manage.py rotate_encryption` (`rotation.py`) re-encrypts with the first. Each
purpose has its own key derived by HKDF, so a ciphertext copied into another column does not open there.
"""

import base64
import os
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import models
from django.db.models.query_utils import DeferredAttribute


@cache
def _cipher(purpose: str, keys: tuple[str, ...]) -> MultiFernet:
    def derive(key: str) -> Fernet:
        secret = base64.urlsafe_b64decode(key)
        derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=purpose.encode()).derive(secret)
        return Fernet(base64.urlsafe_b64encode(derived))

    return MultiFernet([derive(key) for key in keys])


def encrypt(text: str, *, purpose: str) -> str:
    """The ciphertext of a secret, for a text column."""
    return _cipher(purpose, tuple(settings.ENCRYPTION_KEYS)).encrypt(text.encode()).decode()


def decrypt(ciphertext: str, *, purpose: str) -> str:
    """The secret behind a ciphertext. Raises `cryptography.fernet.InvalidToken` when no key opens it."""
    return _decrypted(ciphertext, purpose, tuple(settings.ENCRYPTION_KEYS))


# Every send and every delivery needs the same few secrets again.
@lru_cache(maxsize=4096)
def _decrypted(ciphertext: str, purpose: str, keys: tuple[str, ...]) -> str:
    return _cipher(purpose, keys).decrypt(ciphertext.encode()).decode()


def rotated(ciphertext: str, *, purpose: str) -> str | None:
    """The ciphertext under the first key, or None when it is already. Raises InvalidToken when no key opens it."""
    keys = tuple(settings.ENCRYPTION_KEYS)
    try:
        _cipher(purpose, keys[:1]).decrypt(ciphertext.encode())
    except InvalidToken:
        return _cipher(purpose, keys).rotate(ciphertext.encode()).decode()
    return None


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A value that no key opens, as it was read from the database."""

    ciphertext: str = field(repr=False)


class _Secret(DeferredAttribute):
    """The attribute of an encrypted column: raises for a value that no key opens, which its row does not."""

    field: "EncryptedTextField"

    def __get__(self, instance: models.Model | None, cls: type[models.Model] | None = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, _Unreadable):
            raise InvalidToken("No key of ENCRYPTION_KEYS opens this secret.")
        return value

    def __set__(self, instance: models.Model, value: str | None) -> None:
        instance.__dict__[self.field.attname] = value


SALT_BYTES = 16
_NONCE_BYTES = 12


class FileCipher:
    """AES-GCM for the parts of one short-lived file, under a key of its own: a tenth of Fernet's cost.

    The file's salt and each of `ENCRYPTION_KEYS` give a key; the first encrypts, all decrypt.
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
        """For a new file."""
        return cls(os.urandom(SALT_BYTES), purpose=purpose)

    def encrypt(self, content: bytes) -> bytes:
        """A part of the file."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, content, None)

    def decrypt(self, part: bytes) -> bytes:
        """The content of a part. Raises `cryptography.exceptions.InvalidTag` when no key opens it."""
        nonce, ciphertext = part[:_NONCE_BYTES], part[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, ciphertext, None)
            except InvalidTag:
                continue
        raise InvalidTag


class EncryptedTextField(models.TextField):  # type: ignore[type-arg]
    """A text column that holds ciphertext and reads as the secret. Empty and NULL stay as they are.

    A row whose secret no key opens can be listed, changed and deleted like any other: only its secret's attribute
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
