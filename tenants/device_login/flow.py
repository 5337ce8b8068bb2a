"""Device log-in (RFC 8628 in this API's form): a program gets two codes, a person confirms, the program gets a key.

The long device code is the program's secret. The short user code is what the person compares; it opens nothing by
itself. The key is made when the program asks for it after the confirmation, so that it is never stored.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction

from gateway import roles
from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from gateway.database.pruning import delete_free
from gateway.roles import Area
from tenants.credentials import api_keys
from tenants.device_login_models import DeviceLogin
from tenants.models import ApiKey, Tenant, User

LIFETIME = timedelta(minutes=10)
POLL_SECONDS = 3
KEY_LIFETIME = timedelta(days=90)
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""Consonants: no word can come of them, and no letter looks like a digit."""
USER_CODE_LETTERS = 8
EXPIRED = "expired"
"""The status that a program gets for a code that is unknown, too old, or redeemed."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Started:
    """A new request with both of its codes."""

    row: DeviceLogin
    device_code: str


@dataclass(frozen=True, slots=True)
class Redeemed:
    """The status of a request. `new` is the key, in the one answer that makes it."""

    status: str
    new: api_keys.NewKey | None = None


def start(*, client_name: str, ip: str | None) -> Started:
    """Keep a program's request for ten minutes."""
    device_code = secrets.token_urlsafe(32)
    for _ in range(_TRIES):
        user_code = "".join(secrets.choice(ALPHABET) for _ in range(USER_CODE_LETTERS))
        try:
            with transaction.atomic():
                row = DeviceLogin.objects.create(
                    device_code_hash=api_keys.hash_of(device_code),
                    user_code=user_code,
                    client_name=client_name,
                    ip=ip,
                    expires_at=now() + LIFETIME,
                )
        except IntegrityError:
            continue
        return Started(row, device_code)
    raise Conflict("No user code is free at the moment. Try again.")


def shown(user_code: str) -> str:
    """A user code as people read it: `BCDF-GHJK`."""
    return f"{user_code[:4]}-{user_code[4:]}"


def address(user_code: str | None = None) -> str:
    """The page on which a person confirms, with the code filled in or without."""
    page = f"{settings.APP_URL}/console/device"
    return f"{page}?code={shown(user_code)}" if user_code else page


def waiting(typed: str) -> DeviceLogin:
    """The request that waits for a person, by the code as it was typed. Raises NotFound."""
    row = DeviceLogin.objects.filter(**_is_waiting(typed)).first()
    if row is None:
        raise NotFound("No program waits with this code. It may have expired: start the log-in again.")
    return row


def confirm(typed: str, *, user: User, tenant: Tenant, environment: str) -> None:
    """Let the program have a key of the person's business. Raises NotFound; Conflict for a closed account."""
    if tenant.status != Tenant.Status.ACTIVE:
        raise Conflict("Keys can be made once the account is active.")
    if tenant.sandbox:
        environment = ApiKey.Environment.TEST
    _decide(typed, status=DeviceLogin.Status.CONFIRMED, user=user, tenant=tenant, environment=environment)


def deny(typed: str, *, user: User) -> None:
    """Refuse the program. Raises NotFound."""
    _decide(typed, status=DeviceLogin.Status.DENIED, user=user)


def redeem(device_code: str) -> Redeemed:
    """What the program gets: a key once a person has confirmed, and only once. Raises Conflict."""
    with transaction.atomic():
        row = (
            DeviceLogin.objects.select_for_update(of=("self",))
            .select_related("tenant", "user")
            .filter(device_code_hash=api_keys.hash_of(device_code), expires_at__gt=now())
            .exclude(status=DeviceLogin.Status.REDEEMED)
            .first()
        )
        if row is None:
            return Redeemed(EXPIRED)
        if row.status != DeviceLogin.Status.CONFIRMED:
            return Redeemed(row.status)
        tenant, user = row.tenant, row.user
        assert tenant is not None and user is not None  # noqa: S101, PT018 - a confirmed request has both
        may_make_keys = user.is_active and user.tenant_id == tenant.id
        if not (may_make_keys and roles.may_change(user.role, Area.INTEGRATION)):
            raise Conflict("The person who confirmed may no longer make keys.")
        if tenant.status != Tenant.Status.ACTIVE:
            raise Conflict("The account is no longer active.")
        row.status = DeviceLogin.Status.REDEEMED
        row.save(update_fields=["status"])
        new = api_keys.create(
            name=f"Command line on {row.client_name}",
            environment=row.environment,
            tenant=tenant,
            expires_at=now() + KEY_LIFETIME,
            actor_user_id=user.pk,
        )
        return Redeemed(DeviceLogin.Status.CONFIRMED, new)


def forget_expired() -> int:
    """Delete what is over; returns how many."""
    return delete_free(DeviceLogin.objects.filter(expires_at__lte=now()))


def _is_waiting(typed: str) -> dict[str, object]:
    code = "".join(letter for letter in typed.upper() if letter in ALPHABET)[:USER_CODE_LETTERS]
    return {"user_code": code, "status": DeviceLogin.Status.WAITING, "expires_at__gt": now()}


def _decide(typed: str, **values: object) -> None:
    # One statement: of two decisions at once the first counts.
    if not DeviceLogin.objects.filter(**_is_waiting(typed)).update(**values):
        raise NotFound("No program waits with this code. It may have expired: start the log-in again.")
