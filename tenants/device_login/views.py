"""`/v1/device-logins*`: a program without a browser asks for an API key; no credentials."""

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api.errors import RateLimited
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from tenants.device_login import flow
from tenants.models import ApiKey
from tenants.names import check_name


class DeviceLoginIn(serializers.Serializer[Any]):
    client_name = serializers.CharField(
        max_length=100, validators=[check_name], help_text="What the person sees, e.g. the computer's name."
    )


class DeviceLoginOut(serializers.Serializer[Any]):
    device_code = serializers.CharField(help_text="The program's secret: redeem it for the key.")
    user_code = serializers.CharField(help_text="What the person compares with the page.")
    verification_url = serializers.URLField(help_text="The page on which the person types the code.")
    verification_url_complete = serializers.URLField(help_text="The same page with the code filled in.")
    expires_at = serializers.DateTimeField()
    interval_seconds = serializers.IntegerField(help_text="How long to wait between two redemptions.")


class DeviceCodeIn(serializers.Serializer[Any]):
    device_code = serializers.CharField(max_length=100)


class DeviceKeyOut(serializers.ModelSerializer[ApiKey]):
    key = serializers.CharField(help_text="The full key: in this answer and nowhere else.")
    tenant_name = serializers.CharField(source="tenant.name")

    class Meta:
        model = ApiKey
        fields = ["id", "name", "environment", "prefix", "key", "expires_at", "tenant_id", "tenant_name"]


class RedeemedDeviceLoginOut(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["waiting", "confirmed", "denied", "expired"])
    api_key = DeviceKeyOut(allow_null=True, help_text="Present once, when the status is `confirmed`.")


class DeviceLoginsView(ResourceViewSet):
    """The program's side; the person's is a page of the console."""

    authentication_classes: list[Any] = []
    permission_classes: list[type[BasePermission]] = []
    throttle_classes: list[Any] = []

    @extend_schema(
        operation_id="create_device_login",
        summary="Start a device log-in",
        description="Show the person `user_code` and `verification_url_complete`, and redeem `device_code` every "
        "`interval_seconds`. Both codes live for ten minutes.",
        tags=["Device logins"],
        auth=[],
        request=DeviceLoginIn,
        responses={201: DeviceLoginOut},
    )
    def create(self, request: Request) -> Response:
        body = checked(DeviceLoginIn(data=request.data))
        _bound(request, "device_login", 600)
        started = flow.start(**body, ip=get_adapter().get_client_ip(request._request))
        code = started.row.user_code
        return Response(
            {
                "device_code": started.device_code,
                "user_code": flow.shown(code),
                "verification_url": flow.address(),
                "verification_url_complete": flow.address(code),
                "expires_at": started.row.expires_at,
                "interval_seconds": flow.POLL_SECONDS,
            },
            status=201,
        )

    @extend_schema(
        operation_id="redeem_device_login",
        summary="Redeem a device log-in",
        description="The status, and once a person has confirmed the key: in the first answer with `confirmed` alone. "
        "A code that is unknown, too old or redeemed is `expired`.",
        tags=["Device logins"],
        auth=[],
        request=DeviceCodeIn,
        responses={200: RedeemedDeviceLoginOut},
    )
    def redeem(self, request: Request) -> Response:
        body = checked(DeviceCodeIn(data=request.data))
        _bound(request, "device_redeem", 60)
        redeemed = flow.redeem(**body)
        if redeemed.new is None:
            return Response({"status": redeemed.status, "api_key": None})
        redeemed.new.row.key = redeemed.new.key  # type: ignore[attr-defined]
        return Response({"status": redeemed.status, "api_key": DeviceKeyOut(redeemed.new.row).data})


def _bound(request: Request, action: str, window_seconds: int) -> None:
    """Bound what one address may ask without credentials (`ACCOUNT_RATE_LIMITS`)."""
    if not ratelimit.consume(request._request, action=action):
        raise RateLimited(
            "Too many device log-ins from this address.", headers={"Retry-After": str(window_seconds)}
        )
