"""The hosted connect page at `{APP_URL}/connect/<token>`: the embedded sign-up in the browser, and its JSON bodies.

GET shows the page, or redirects when the session is over. POST receives the result of the sign-up. The POST is
protected by Django's CSRF check and by a state that belongs to the session. Its response contains the address that the
page opens next. Meta's SDK is the only foreign script that the page's content security policy allows.
"""

from typing import Any
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe
from rest_framework import serializers
from rest_framework.exceptions import ParseError

from gateway.api import limits
from gateway.api.errors import Conflict, MetaUnreachable, TooManyInFlight
from gateway.api.json import parse_object
from gateway.upstream.calls import UpstreamUnreachable, platform
from phone_numbers.hosted_connect import sessions
from phone_numbers.hosted_connect.sessions import problem_of
from phone_numbers.models import ConnectSession
from phone_numbers.serializers import CredentialField, UpstreamIdField
from phone_numbers.tokens import Refused
from tenants.models import Tenant

SDK_URL = "https://connect.facebook.net/en_US/sdk.js"
"""Meta's script for the embedded sign-up."""


class ConnectSessionIn(serializers.Serializer[dict[str, Any]]):
    return_url = serializers.CharField()

    def validate_return_url(self, value: str) -> str:
        if problem := problem_of(value):
            raise serializers.ValidationError(problem)
        return value


class NewConnectSessionOut(serializers.ModelSerializer[ConnectSession]):
    id = serializers.CharField(source="public_id")
    url = serializers.SerializerMethodField()
    status = serializers.CharField(source="shown_status")

    class Meta:
        model = ConnectSession
        fields = ["id", "url", "expires_at", "status"]

    def get_url(self, session: ConnectSession) -> str:
        return sessions.url_of(session)


class ConnectSessionOut(NewConnectSessionOut):
    class Meta(NewConnectSessionOut.Meta):
        fields = [
            *NewConnectSessionOut.Meta.fields,
            "return_url",
            "created_at",
            "completed_at",
            "waba_id",
            "phone_number_ids",
            "error",
        ]


class ConnectAnswerIn(serializers.Serializer[dict[str, Any]]):
    """Body of the hosted page: the code of the sign-up with its ids, or no code when the business left."""

    state = serializers.CharField(max_length=200)
    code = CredentialField(required=False, allow_null=True, default=None)
    waba_id = UpstreamIdField(required=False, allow_null=True, default=None)
    phone_number_id = UpstreamIdField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, default=None, max_length=2000
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["code"] is not None and attrs["waba_id"] is None:
            raise serializers.ValidationError({"waba_id": ["This field is required with a code."]})
        return attrs


log = structlog.get_logger(__name__)

META_SDK_ORIGIN = "https://connect.facebook.net"
META_ORIGINS = "https://*.facebook.com"


@require_safe
@never_cache
@ensure_csrf_cookie
def connect_page(request: HttpRequest, token: str) -> HttpResponse:
    """The page of an open session. Redirects to the return_url when the session is over. An expired session, an unknown
    link and a tenant that is not active each have their own page.
    """
    session = sessions.by_link(token)
    if session is None:
        return _page(request, "connect/unknown.html", status=404)
    if session.status != ConnectSession.Status.OPEN:
        return HttpResponseRedirect(sessions.return_address(session))
    context: dict[str, Any] = {
        "tenant": session.tenant,
        "return_address": sessions.return_address(session),
    }
    if session.shown_status == ConnectSession.EXPIRED:
        return _page(request, "connect/expired.html", context, status=410)
    if session.tenant.status != Tenant.Status.ACTIVE:
        return _page(request, "connect/unavailable.html", context, status=403)
    sdk_url = sdk_url_for(session.environment)
    context |= {
        "session": session,
        "state": sessions.state_of(session),
        "token": token,
        "sdk_url": sdk_url,
        "sdk_origin": _origin(sdk_url),
        "app_id": platform(session.environment).app_id,
        "config_id": settings.META_CONFIG_ID,
        "graph_version": settings.META_GRAPH_VERSION,
    }
    return _page(request, "connect/open.html", context, sdk_origin=_origin(sdk_url))


@require_POST
@never_cache
def connect_answer(request: HttpRequest, token: str) -> JsonResponse:
    """Receive the sign-up's result: {state, code, waba_id, phone_number_id?}, or {state, reason?} when the business
    left.

    Returns 200 {status, redirect}. Returns {retry: true} with 409 while another result is processed, and with 503 when
    Meta was unreachable or busy: the same result may then be sent again. Returns 404 for an unknown link, 403 for a
    wrong state or a tenant that is not active, and 400 for an invalid body.
    """
    session = sessions.by_link(token)
    if session is None:
        return JsonResponse({"error": "unknown"}, status=404)
    try:
        answer = ConnectAnswerIn(data=parse_object(request.body))
    except ParseError:
        return JsonResponse({"error": "invalid"}, status=400)
    if not answer.is_valid():
        return JsonResponse({"error": "invalid", "fields": list(answer.errors)}, status=400)
    given = answer.validated_data
    if not sessions.is_state_of(session, given["state"]):
        return JsonResponse({"error": "state"}, status=403)
    if session.tenant.status != Tenant.Status.ACTIVE:
        return JsonResponse({"error": "unavailable"}, status=403)
    try:
        with limits.upstream.held(session.tenant_id):
            session = _apply(session, given)
    except Conflict:
        return JsonResponse({"retry": True}, status=409)
    except (TooManyInFlight, MetaUnreachable, UpstreamUnreachable, Refused) as error:
        log.warning("connect_session_unfinished", session=session.public_id, error=type(error).__name__)
        return JsonResponse({"retry": True}, status=503)
    if session.shown_status == ConnectSession.EXPIRED:
        return JsonResponse({"error": "expired"}, status=410)
    return JsonResponse({"status": session.status, "redirect": sessions.return_address(session)})


def _apply(session: ConnectSession, given: dict[str, Any]) -> ConnectSession:
    if given["code"] is None:
        return sessions.give_up(session, reason=given["reason"])
    return sessions.finish(
        session,
        code=given["code"],
        waba_id=given["waba_id"],
        phone_number_id=given["phone_number_id"],
    )


def sdk_url_for(environment: str) -> str:
    """The address of the embedded sign-up's script: the simulator's script when the simulator serves the environment,
    otherwise Meta's.
    """
    is_simulated = environment == "test" or settings.META_GRAPH_URL == settings.SANDBOX_GRAPH_URL
    return settings.SANDBOX_SIGNUP_SDK_URL if is_simulated else SDK_URL


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _page(
    request: HttpRequest,
    template: str,
    context: dict[str, Any] | None = None,
    *,
    status: int = 200,
    sdk_origin: str = "",
) -> HttpResponse:
    # The person who connects may have no login for the console, so the page has no navigation.
    response = render(request, template, {"console": None, **(context or {})}, status=status)
    response["Content-Security-Policy"] = _policy(sdk_origin)
    # The window of the sign-up sends messages to the page that opened it. This value keeps the link between both
    # windows.
    response["Cross-Origin-Opener-Policy"] = "same-origin-allow-popups"
    return response


def _policy(sdk_origin: str) -> str:
    """The page's content security policy. It allows no inline code, and no foreign origins except those of the SDK."""
    foreign = f"{sdk_origin} {META_ORIGINS}" if sdk_origin == META_SDK_ORIGIN else sdk_origin
    sources = {
        "default-src": "'none'",
        "script-src": f"'self' {sdk_origin}",
        "style-src": "'self'",
        "img-src": f"'self' data: {foreign}",
        "connect-src": f"'self' {foreign}",
        "frame-src": foreign or "'none'",
        "form-action": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{directive} {allowed.strip()}" for directive, allowed in sources.items())
