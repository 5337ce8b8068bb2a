"""`/v1/console/sessions`: how a person gets a console token (decision "Authentication").

The log-in page and this route share one count of failures: 5 per account and 20 per address in 15 minutes.
"""

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.core import ratelimit
from django.conf import settings
from django.core.exceptions import ValidationError
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api.authentication import ConsoleCaller
from gateway.api.errors import Forbidden, RateLimited, Unauthorized
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from tenants.console.log_in.accounts import check_second_factor, has_second_factor
from tenants.credentials import console_sessions
from tenants.credentials.authentication import BearerAuthentication
from tenants.models import ConsoleSession, User
from tenants.serializers import ConsoleSessionIn, ConsoleSessionOut, NewConsoleSessionOut

FAILURE_WINDOW_SECONDS = 15 * 60


class ConsoleSessionsView(ResourceViewSet):
    """Log in with e-mail and password, and a code where a second factor is on."""

    authentication_classes: list[Any] = []
    permission_classes: list[type[BasePermission]] = []
    throttle_classes: list[Any] = []

    @extend_schema(
        operation_id="create_console_session",
        summary="Log in",
        description="Takes e-mail, password and, where a second factor is on, `otp`. The console token lives 12 hours.",
        tags=["Console sessions"],
        auth=[],
        request=ConsoleSessionIn,
        responses={201: NewConsoleSessionOut},
    )
    def create(self, request: Request) -> Response:
        user = _identify(request, **checked(ConsoleSessionIn(data=request.data)))
        new = console_sessions.open_session(user)
        return Response({"token": new.token, **_shown(new.row)}, status=201)


class CurrentConsoleSessionView(ResourceViewSet):
    """The session behind the console token of the request."""

    authentication_classes = [BearerAuthentication]
    permission_classes = [ConsoleCaller]

    @extend_schema(
        operation_id="get_console_session",
        summary="Get the current console session",
        description="Who is logged in with the console token of this request.",
        tags=["Console sessions"],
        responses=ConsoleSessionOut,
    )
    def retrieve(self, request: Request) -> Response:
        return Response(_shown(_current(request)))

    @extend_schema(
        operation_id="end_console_session",
        summary="Log out",
        description="The console token of this request stops working.",
        tags=["Console sessions"],
        responses={204: None},
    )
    def destroy(self, request: Request) -> Response:
        _current(request).delete()
        return Response(status=204)


def _identify(request: Request, *, email: str, password: str, otp: str) -> User:
    """The person behind the credentials. Raises Unauthorized, Forbidden, RateLimited."""
    try:
        user = get_adapter().authenticate(request._request, email=email.lower(), password=password)
    except ValidationError:
        raise _too_many() from None
    if user is None or not user.is_active:
        raise Unauthorized(
            "Email address or password is wrong.", hint="A new password is set from the log-in page."
        )
    if has_second_factor(user):
        if not otp:
            raise Unauthorized(
                "This account has a second factor: send its code as `otp`.",
                hint="Send the same body with `otp`.",
            )
        limit = {"action": "login_failed", "key": f"mfa-auth-user-{user.pk}"}
        if not ratelimit.consume(request._request, **limit):
            raise _too_many()
        if not check_second_factor(user, otp):
            raise Unauthorized("The code is wrong or was used already.", hint="Send the app's next code.")
        ratelimit.clear(request._request, **limit)
    elif user.is_staff and settings.STAFF_SECOND_FACTOR:
        raise Forbidden("Staff need a second factor: log in to the console once and add one.")
    if not user.is_staff and user.tenant_id is None:
        raise Forbidden("This account belongs to no business.")
    return user  # type: ignore[no-any-return]


def _too_many() -> RateLimited:
    return RateLimited(
        "Too many failed attempts. Wait as long as Retry-After says, or reset the password.",
        headers={"Retry-After": str(FAILURE_WINDOW_SECONDS)},
    )


def _current(request: Request) -> ConsoleSession:
    session = console_sessions.session_for(request.headers["Authorization"].partition(" ")[2].strip())
    if session is None:
        raise Unauthorized
    return session


def _shown(session: ConsoleSession) -> dict[str, Any]:
    user = session.user
    return {
        "expires_at": session.expires_at,
        "user": {"id": user.pk, "email": user.email, "is_staff": user.is_staff},
        "tenant_id": user.tenant_id,
    }
