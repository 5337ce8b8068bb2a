"""After `manage.py rotate_encryption`, the new key alone decrypts all stored secrets."""

from contextlib import nullcontext
from io import StringIO
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from cryptography.exceptions import InvalidTag
from cryptography.fernet import Fernet, InvalidToken
from django.core.management import call_command
from django.db import connection
from structlog.testing import capture_logs

from gateway import encryption
from gateway.encryption import SALT_BYTES, FileCipher, decrypt, encrypt
from phone_numbers.models import BusinessAccount, PhoneNumber, RedeemedCode
from tenants.credentials import log_in
from tenants.credentials.log_in import PURPOSE, SecondFactorAdapter
from tenants.models import Tenant, User
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def rotate() -> str:
    out = StringIO()
    call_command("rotate_encryption", stdout=out)
    return out.getvalue()


@pytest.fixture
def secrets(settings: Any, tenant: Tenant, staff: User) -> None:
    """One row of each model with encrypted columns, encrypted with the old key. Some columns are empty."""
    settings.ENCRYPTION_KEYS = [OLD]
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="1", access_token="EAAaccount"
    )
    for phone_number_id, pin in (("2", "271828"), ("3", None)):
        PhoneNumber.objects.create(
            account=account, tenant=tenant, environment="live", phone_number_id=phone_number_id, pin=pin
        )
    RedeemedCode.objects.create(tenant=tenant, environment="live", code_hash="h", access_token="EAAcode")
    Endpoint.objects.create(
        tenant=tenant,
        url="https://a.example",
        event_types=["*"],
        secret="whsec_new",
        previous_secret="whsec_old",
        secret_prefix="whsec_",
    )
    Authenticator.objects.create(
        user=staff, type=Authenticator.Type.TOTP, data={"secret": encrypt("BASE32", purpose=PURPOSE)}
    )
    Authenticator.objects.create(
        user=staff, type=Authenticator.Type.RECOVERY_CODES, data={"seed": encrypt("SEED", purpose=PURPOSE)}
    )


def assert_readable(staff: User) -> None:
    assert BusinessAccount.objects.get().access_token == "EAAaccount"
    assert list(PhoneNumber.objects.order_by("phone_number_id").values_list("pin", flat=True)) == [
        "271828",
        None,
    ]
    assert RedeemedCode.objects.get().access_token == "EAAcode"
    endpoint = Endpoint.objects.get()
    assert (endpoint.secret, endpoint.previous_secret) == ("whsec_new", "whsec_old")
    factors = Authenticator.objects.filter(user=staff).order_by("id")
    stored = [value for factor in factors for value in factor.data.values()]
    assert [SecondFactorAdapter().decrypt(value) for value in stored] == ["BASE32", "SEED"]


def test_the_old_key_can_go_after_the_rotation(settings: Any, secrets: None, staff: User) -> None:
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    assert_readable(staff)
    assert rotate().startswith("7 secrets")
    assert rotate().startswith("0 secrets")
    settings.ENCRYPTION_KEYS = [NEW]
    assert_readable(staff)


def test_a_secret_that_no_key_opens_stops_no_other(settings: Any, secrets: None, staff: User) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE webhooks_endpoint SET secret = 'gAAAAbroken'")
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    with pytest.raises(InvalidToken, match="6 secrets re-encrypted; no key decrypts 1 other"):
        rotate()
    settings.ENCRYPTION_KEYS = [NEW]
    assert BusinessAccount.objects.get().access_token == "EAAaccount"
    endpoint = Endpoint.objects.get()
    assert endpoint.previous_secret == "whsec_old"
    with pytest.raises(InvalidToken):
        str(endpoint.secret)


def test_a_second_factor_that_no_key_opens_stops_no_other(settings: Any, secrets: None) -> None:
    broken = Authenticator.objects.get(type=Authenticator.Type.TOTP)
    Authenticator.objects.filter(pk=broken.pk).update(data={"secret": "gAAAAbroken"})
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    with (
        capture_logs() as logged,
        pytest.raises(InvalidToken, match="6 secrets re-encrypted; no key decrypts 1"),
    ):
        rotate()
    assert [(entry["event"], entry["table"], entry["key"]) for entry in logged] == [
        ("secret_unreadable", "mfa_authenticator", str(broken.pk))
    ]
    broken.refresh_from_db()
    assert broken.data == {"secret": "gAAAAbroken"}
    settings.ENCRYPTION_KEYS = [NEW]
    codes = Authenticator.objects.get(type=Authenticator.Type.RECOVERY_CODES)
    assert SecondFactorAdapter().decrypt(codes.data["seed"]) == "SEED"


def test_saving_a_row_keeps_a_secret_that_no_key_opens(settings: Any, secrets: None) -> None:
    settings.ENCRYPTION_KEYS = [NEW]
    endpoint = Endpoint.objects.get()
    endpoint.description = "changed"
    endpoint.save()
    settings.ENCRYPTION_KEYS = [OLD]
    endpoint = Endpoint.objects.get()
    assert (endpoint.description, endpoint.secret) == ("changed", "whsec_new")


def test_a_key_that_is_missing_stops_it_and_loses_nothing(settings: Any, secrets: None, staff: User) -> None:
    settings.ENCRYPTION_KEYS = [NEW]
    with pytest.raises(InvalidToken):
        rotate()
    settings.ENCRYPTION_KEYS = [OLD]
    assert_readable(staff)


def test_a_secret_that_changes_during_the_rotation_keeps_its_newer_value(
    settings: Any, secrets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    rotated = encryption.rotated

    def while_the_secret_changes(ciphertext: str, *, purpose: str) -> str | None:
        Endpoint.objects.update(secret="whsec_newer")
        return rotated(ciphertext, purpose=purpose)

    monkeypatch.setattr(encryption, "rotated", while_the_secret_changes)
    assert rotate().startswith("6 secrets")
    assert Endpoint.objects.get().secret == "whsec_newer"


def test_a_second_factor_that_is_removed_meanwhile_stops_no_other(
    settings: Any, secrets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENCRYPTION_KEYS = [NEW, OLD]

    def while_the_codes_are_removed(ciphertext: str, *, purpose: str) -> str | None:
        Authenticator.objects.filter(type=Authenticator.Type.RECOVERY_CODES).delete()
        return encryption.rotated(ciphertext, purpose=purpose)

    monkeypatch.setattr(log_in, "rotated", while_the_codes_are_removed)
    assert rotate().startswith("6 secrets")


def test_every_row_of_more_than_one_batch_is_turned(
    settings: Any, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENCRYPTION_KEYS = [OLD]
    for index in range(7):
        BusinessAccount.objects.create(
            tenant=tenant, environment="live", waba_id=str(index), access_token=f"EAA{index}"
        )
    monkeypatch.setattr(encryption, "BATCH", 3)
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    assert encryption.rotate_all() == 7
    settings.ENCRYPTION_KEYS = [NEW]
    tokens = BusinessAccount.objects.order_by("waba_id").values_list("access_token", flat=True)
    assert list(tokens) == [f"EAA{index}" for index in range(7)]


def test_secrets_are_stored_as_ciphertext_alone(secrets: None) -> None:
    stored = []
    with connection.cursor() as cursor:
        for field in encryption.encrypted_fields():
            cursor.execute(f"SELECT {field.column} FROM {field.model._meta.db_table}")  # noqa: S608
            stored += [value for (value,) in cursor.fetchall() if value]
    assert len(stored) == 5
    assert all(value.startswith("gAAAA") for value in stored)


def test_a_secret_opens_with_the_keys_and_the_purpose_it_was_written_with(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [OLD]
    cipher = FileCipher.new(purpose="a")
    secret, part = encrypt("s", purpose="a"), cipher.encrypt(b"s")
    for keys, opens in (([OLD], True), ([NEW, OLD], True), ([NEW], False)):
        settings.ENCRYPTION_KEYS = keys
        with nullcontext() if opens else pytest.raises(InvalidToken):
            assert decrypt(secret, purpose="a") == "s"
        with nullcontext() if opens else pytest.raises(InvalidTag):
            assert FileCipher(cipher.salt, purpose="a").decrypt(part) == b"s"
        with pytest.raises(InvalidToken):
            decrypt(secret, purpose="b")
        for salt, purpose in ((cipher.salt, "b"), (bytes(SALT_BYTES), "a")):
            with pytest.raises(InvalidTag):
                FileCipher(salt, purpose=purpose).decrypt(part)
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    written, fresh = encrypt("s", purpose="a"), FileCipher(cipher.salt, purpose="a").encrypt(b"s")
    settings.ENCRYPTION_KEYS = [NEW]
    assert decrypt(written, purpose="a") == "s", "the first key encrypts"
    assert FileCipher(cipher.salt, purpose="a").decrypt(fresh) == b"s"
    assert FileCipher.new(purpose="a").salt != cipher.salt
