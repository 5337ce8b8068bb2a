"""Password hashes: Argon2id, a limited number at once, and older hashes that still work."""

import threading
from collections.abc import Iterator

import pytest
from django.contrib.auth.hashers import (
    Argon2PasswordHasher,
    PBKDF2PasswordHasher,
    check_password,
    identify_hasher,
    make_password,
)
from django.test import override_settings

from gateway import settings as production
from tenants.credentials import log_in
from tenants.models import User

PASSWORD = "a long enough password"


@pytest.fixture(autouse=True)
def hashers_of_production(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the hashers of production. Other tests use a cheap hasher."""
    monkeypatch.setattr(PBKDF2PasswordHasher, "iterations", 1000)
    with override_settings(PASSWORD_HASHERS=production.PASSWORD_HASHERS):
        yield


def test_a_new_hash_is_argon2id_with_the_parameters_of_owasp() -> None:
    assert make_password(PASSWORD).startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")


@pytest.mark.django_db
def test_an_older_hash_opens_and_is_rehashed() -> None:
    person = User.objects.create_user("shop@example.com", PASSWORD)
    person.password = make_password(PASSWORD, hasher="pbkdf2_sha256")
    person.save()

    assert not person.check_password("another password")
    assert User.objects.get().password.startswith("pbkdf2_sha256$")
    assert person.check_password(PASSWORD)

    stored = User.objects.get().password
    assert identify_hasher(stored).algorithm == "argon2"
    assert check_password(PASSWORD, stored)


def test_a_flood_of_log_ins_makes_few_hashes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Semaphore(0), threading.Event()

    def verify(self: Argon2PasswordHasher, password: str, encoded: str) -> bool:
        entered.release()
        return go_on.wait(10)

    monkeypatch.setattr(Argon2PasswordHasher, "verify", verify)
    hasher = log_in.Argon2idHasher()
    most = log_in.AT_ONCE
    flood = [threading.Thread(target=hasher.verify, args=(PASSWORD, "")) for _ in range(most)]
    for thread in flood:
        thread.start()
    for _ in flood:
        assert entered.acquire(timeout=10)
    assert not log_in.room.acquire(blocking=False)
    go_on.set()
    for thread in flood:
        thread.join(10)
    assert log_in.room.acquire(blocking=False)
    log_in.room.release()
