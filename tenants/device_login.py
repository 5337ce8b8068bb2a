"""Device log-in: a program without a browser requests an API key, and a member confirms it in the console."""

import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog
from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from django.conf import settings
from django.db import IntegrityError, transaction
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from gateway import roles
from gateway.api.errors import Conflict, NotFound, RateLimited
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.clock import now
from gateway.database.partitions import delete_free
from gateway.roles import Area
from gateway.valkey import token_bucket
from gateway.valkey.connection import VALKEY_UNAVAILABLE
from tenants.credentials import api_keys
from tenants.credentials.api_keys import Grant
from tenants.models import ApiKey, DeviceLogin, Tenant, User
from tenants.names import check_name

# --- Device log-in (RFC 8628 in the form of this API). A program gets two codes, a member confirms the short one, and
# the program gets a key.
#
# The long device code is the program's secret. The member compares the short user code, which gives no access by
# itself. The key is created when the program fetches it after the confirmation, so the full key is never stored.

LIFETIME = timedelta(minutes=10)
POLL_SECONDS = 3
KEY_LIFETIME = timedelta(days=90)
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""Only consonants, so that no code contains a word, or a letter that looks like a digit."""
USER_CODE_LETTERS = 8
EXPIRED = "expired"
"""The status of a code that is unknown, expired or redeemed."""
CODES_AT_ONCE = 20
SECONDS_A_CODE = 30.0
"""A member may type `CODES_AT_ONCE` codes at once, then one more each time this many seconds have passed. So guessing a
code takes too long.
"""
_TRIES = 5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A new request with its two codes."""

    row: DeviceLogin
    device_code: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Redeemed:
    """The status of a request. `new` is the new key. Only the call that creates the key returns it."""

    status: str
    new: api_keys.NewKey | None = None


def start(*, client_name: str, ip: str | None) -> Started:
    """Store a program's request for ten minutes. Raises Conflict when no user code is free."""
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
    """A user code in its readable form: `BCDF-GHJK`."""
    return f"{user_code[:4]}-{user_code[4:]}"


def address(user_code: str | None = None) -> str:
    """The URL of the page on which a member confirms. If `user_code` is given, the page has it filled in."""
    page = f"{settings.APP_URL}/console/device"
    return f"{page}?code={shown(user_code)}" if user_code else page


def may_look_up(user: User) -> bool:
    """Whether a member may type another code. While Valkey is unavailable, every code may be typed."""
    try:
        return token_bucket.take(
            f"device-codes:{user.pk}", rate=1 / SECONDS_A_CODE, burst=CODES_AT_ONCE
        ).allowed
    except VALKEY_UNAVAILABLE as error:
        log.warning("device_code_bound_unavailable", error=type(error).__name__)
        return True


def waiting(typed: str) -> DeviceLogin:
    """The pending request with the code that a member typed. Raises NotFound."""
    row = DeviceLogin.objects.filter(**_is_waiting(typed)).first()
    if row is None:
        raise NotFound("No program is waiting with this code. It may have expired: start the log-in again.")
    return row


def confirm(typed: str, *, user: User, tenant: Tenant, environment: str) -> None:
    """Allow the program to get a key of the member's tenant. Raises NotFound, and Conflict for a tenant that is not
    active.
    """
    if tenant.status != Tenant.Status.ACTIVE:
        raise Conflict("Keys can be created once the account is active.")
    if tenant.sandbox:
        environment = ApiKey.Environment.TEST
    _decide(typed, status=DeviceLogin.Status.CONFIRMED, user=user, tenant=tenant, environment=environment)


def deny(typed: str, *, user: User) -> None:
    """Deny the program's request. Raises NotFound."""
    _decide(typed, status=DeviceLogin.Status.DENIED, user=user)


def redeem(device_code: str) -> Redeemed:
    """Redeem a device code. After a member has confirmed, the first call creates the key. Raises Conflict when the
    member may no longer create keys or the tenant is no longer active.
    """
    rows = DeviceLogin.objects.filter(device_code_hash=api_keys.hash_of(device_code), expires_at__gt=now())
    with transaction.atomic():
        # The removal of a member locks the tenant and then deletes the member's requests.
        list(
            Tenant.objects.select_for_update(of=("self",), no_key=True).filter(
                pk__in=rows.values("tenant_id")
            )
        )
        row = (
            rows.select_for_update(of=("self",))
            .select_related("tenant", "user")
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
            within=Grant(roles.scopes_of_role(user.role), ends_at=now() + KEY_LIFETIME),
            actor_user_id=user.pk,
        )
        return Redeemed(DeviceLogin.Status.CONFIRMED, new)


def prune_expired() -> int:
    """Delete expired requests. Returns the number of rows."""
    return delete_free(DeviceLogin.objects.filter(expires_at__lte=now()))


def _is_waiting(typed: str) -> dict[str, object]:
    code = "".join(letter for letter in typed.upper() if letter in ALPHABET)[:USER_CODE_LETTERS]
    return {"user_code": code, "status": DeviceLogin.Status.WAITING, "expires_at__gt": now()}


def _decide(typed: str, **values: object) -> None:
    # A single statement, so only the first of two simultaneous decisions takes effect.
    if not DeviceLogin.objects.filter(**_is_waiting(typed)).update(**values):
        raise NotFound("No program is waiting with this code. It may have expired: start the log-in again.")


# --- `/v1/device-logins*`: a program without a browser requests an API key, without credentials.


class DeviceLoginIn(serializers.Serializer[Any]):
    client_name = serializers.CharField(
        max_length=100,
        validators=[check_name],
        help_text="The name that the person sees before confirming, such as the computer's name.",
    )


class DeviceLoginOut(serializers.Serializer[Any]):
    device_code = serializers.CharField(
        help_text="A secret of the program, which it redeems for the API key."
    )
    user_code = serializers.CharField(
        help_text="The code that the program shows, and the person compares with the code on the page."
    )
    verification_url = serializers.URLField(help_text="The page on which the person types the code.")
    verification_url_complete = serializers.URLField(
        help_text="The page of `verification_url` with the code already filled in."
    )
    expires_at = serializers.DateTimeField()
    interval_seconds = serializers.IntegerField(help_text="Seconds to wait between two attempts to redeem.")


class DeviceCodeIn(serializers.Serializer[Any]):
    device_code = serializers.CharField(max_length=100)


class DeviceKeyOut(serializers.ModelSerializer[ApiKey]):
    key = serializers.CharField(help_text="The full API key. Only this answer shows it.")
    tenant_name = serializers.CharField(source="tenant.name")

    class Meta:
        model = ApiKey
        fields = ["id", "name", "environment", "prefix", "key", "expires_at", "tenant_id", "tenant_name"]


class RedeemedDeviceLoginOut(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["waiting", "confirmed", "denied", "expired"])
    api_key = DeviceKeyOut(
        allow_null=True,
        help_text="The new API key, in the first answer with the status `confirmed`; otherwise null.",
    )


class DeviceLoginsView(ResourceViewSet):
    """The program's side of a device log-in. The member's side is a page of the console."""

    tag = "Device logins"
    authentication_classes: list[Any] = []
    permission_classes: list[type[BasePermission]] = []
    throttle_classes: list[Any] = []

    @extend_schema(
        operation_id="create_device_login",
        summary="Start a device log-in",
        description="Show the person `user_code` and `verification_url_complete`, and redeem `device_code` every "
        "`interval_seconds`. Both codes are valid for ten minutes.",
        auth=[],
        request=DeviceLoginIn,
        responses={201: DeviceLoginOut},
    )
    def create(self, request: Request) -> Response:
        body = checked(DeviceLoginIn(data=request.data))
        _bound(request, "device_login", 600)
        started = start(**body, ip=get_adapter().get_client_ip(request._request))
        code = started.row.user_code
        return Response(
            {
                "device_code": started.device_code,
                "user_code": shown(code),
                "verification_url": address(),
                "verification_url_complete": address(code),
                "expires_at": started.row.expires_at,
                "interval_seconds": POLL_SECONDS,
            },
            status=201,
        )

    @extend_schema(
        operation_id="redeem_device_login",
        summary="Redeem a device log-in",
        description="Returns the status. The first answer after the confirmation contains the API key. A code that "
        "is unknown, too old or already redeemed is `expired`.",
        auth=[],
        request=DeviceCodeIn,
        responses={200: RedeemedDeviceLoginOut},
    )
    def redeem(self, request: Request) -> Response:
        body = checked(DeviceCodeIn(data=request.data))
        _bound(request, "device_redeem", 60, key=body["device_code"])
        redeemed = redeem(**body)
        if redeemed.new is None:
            return Response({"status": redeemed.status, "api_key": None})
        redeemed.new.row.key = redeemed.new.key  # type: ignore[attr-defined]
        return Response({"status": redeemed.status, "api_key": DeviceKeyOut(redeemed.new.row).data})


def _bound(request: Request, action: str, window_seconds: int, *, key: str | None = None) -> None:
    """Limit the number of requests without credentials, for each IP address or `key` (`ACCOUNT_RATE_LIMITS`). Raises
    RateLimited.
    """
    if not ratelimit.consume(request._request, action=action, key=key):
        raise RateLimited(
            "Too many device log-ins from this address.", headers={"Retry-After": str(window_seconds)}
        )
