"""`/v1/numbers*` and `/v1/connect-sessions*` (specification 4), and `/v1/admin/numbers` for staff.

Objects of the caller's other environment are answered with 404, like objects of another tenant.
"""

from typing import Any
from uuid import UUID

import orjson
from django.core.exceptions import ObjectDoesNotExist
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import StaffCaller, caller_of, scope_of
from gateway.api.errors import NotFound
from gateway.api.limits import waits_for_upstream
from gateway.api.pagination import represent, whole_list
from gateway.api.validation import checked
from gateway.api.viewsets import ResourceViewSet
from gateway.database.statements import bulk_cursor
from gateway.roles import KeyScope
from gateway.upstream.calls import UpstreamUnreachable, meta_unreachable, passed_through
from phone_numbers import app_data, health_and_profile, leaving, onboarding, registration
from phone_numbers.hosted_connect import sessions
from phone_numbers.hosted_connect.pages import ConnectSessionIn, ConnectSessionOut, NewConnectSessionOut
from phone_numbers.models import PhoneNumber
from phone_numbers.onboarding import require_session_allowed
from phone_numbers.serializers import (
    AdminNumberOut,
    AdminNumbersIn,
    ConnectedAccountOut,
    ConnectIn,
    ConnectionOut,
    EmbeddedSignupIn,
    ListedNumber,
    MigrateIn,
    NumberAppDataOut,
    NumberHealthOut,
    NumberOut,
    RefreshedNumberOut,
    RegisterIn,
    ReleasedAccountOut,
    ReleasedNumberOut,
    RequestCodeIn,
    SignedUpNumberOut,
    TwoStepIn,
    VerifyCodeIn,
)
from phone_numbers.tokens import Refused
from tenants.audit import Actor

VERBATIM = OpenApiResponse(OpenApiTypes.OBJECT, description="Meta's answer, unchanged.")


class UpstreamCallsView(ResourceViewSet):
    """A view whose flow calls the Graph API. Returns Meta's rejections verbatim, and a 502 if Meta gives no answer."""

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, ObjectDoesNotExist):
            exc = NotFound("This was released while the operation ran.")
        if isinstance(exc, Refused):
            return passed_through(exc.answer, exc.verdict)
        if isinstance(exc, UpstreamUnreachable):
            return super().handle_exception(meta_unreachable(exc))
        return super().handle_exception(exc)


_COLUMNS = ", ".join("a.waba_id" if name == "waba_id" else f"n.{name}" for name in ListedNumber._fields)
# Written in SQL, because the ORM would need more time to compose the query than the database to run it.
_LIST = f"""
SELECT {_COLUMNS}
FROM numbers_phonenumber n JOIN numbers_businessaccount a ON a.id = n.account_id
WHERE n.tenant_id = %s AND n.environment = %s
ORDER BY n.id DESC
"""  # noqa: S608 - only names of this module are formatted in


def listed(*, tenant_id: UUID, environment: str) -> list[ListedNumber]:
    """The numbers of a tenant in one environment, newest first."""
    with bulk_cursor(prepared=True) as cursor:
        cursor.execute(_LIST, [tenant_id, environment])
        return [ListedNumber(*row) for row in cursor.fetchall()]


class NumbersView(UpstreamCallsView):
    """The numbers of a tenant. The list has no pages."""

    tag = "Numbers"
    scope = KeyScope.NUMBERS
    limited_actions = frozenset({"list"})
    is_paged = False

    @extend_schema(
        operation_id="list_numbers",
        summary="List numbers",
        description="Returns all your numbers, each with its connection state.",
        responses=NumberOut(many=True),
    )
    def list(self, request: Request) -> Response:
        caller = caller_of(request)
        numbers = [each for each in listed(**scope_of(request)) if caller.reaches(each.phone_number_id)]
        return whole_list(represent(NumberOut, numbers))

    @extend_schema(
        operation_id="get_number",
        summary="Get a number",
        description="Returns the number as the service has stored it. With `refresh=true`, the service first reads the "
        "number from Meta, and `meta_snapshot` has Meta's answer.",
        parameters=[
            OpenApiParameter(
                "refresh",
                bool,
                description="Whether to read the number from Meta first. Meta's answer is then in `meta_snapshot`.",
            )
        ],
        responses=RefreshedNumberOut,
    )
    @waits_for_upstream
    def retrieve(self, request: Request, phone_number_id: str) -> Response:
        refreshed = query.flag(request, "refresh")
        number = number_in(request, phone_number_id)
        if not refreshed:
            return Response(NumberOut(number).data)
        return Response(RefreshedNumberOut(health_and_profile.refresh(number)).data)

    @extend_schema(
        operation_id="get_number_health",
        summary="Get a number's health",
        description="Asks Meta whether the number can send. The answer lists the objects on which sending depends, "
        "and why an object limits or blocks it.",
        responses=NumberHealthOut,
    )
    @waits_for_upstream
    def health(self, request: Request, phone_number_id: str) -> Response:
        return Response(
            NumberHealthOut(health_and_profile.read_health(number_in(request, phone_number_id))).data
        )

    @extend_schema(
        operation_id="get_app_data",
        summary="Get the progress of a number's app data",
        description="Returns the progress of importing contacts, and chats of the last six months, from the WhatsApp "
        "Business app. This concerns only a number that stays in that app. Data that was never requested is null.",
        responses=NumberAppDataOut,
    )
    def app_data(self, request: Request, phone_number_id: str) -> Response:
        number = number_in(request, phone_number_id)
        shown = {"phone_number_id": phone_number_id, "coexistence": number.coexistence}
        return Response(NumberAppDataOut({**shown, **app_data.progress_of(number)}).data)

    @extend_schema(
        operation_id="release_number",
        summary="Release a number",
        description="Removes the number from the service. Its events are kept. Releasing the last number of a "
        "business account also releases the account.",
        responses={200: ReleasedNumberOut},
    )
    @waits_for_upstream
    def destroy(self, request: Request, phone_number_id: str) -> Response:
        leaving.release_number(number_in(request, phone_number_id), actor=Actor.of(request))
        return Response(ReleasedNumberOut({"phone_number_id": phone_number_id, "released": True}).data)

    @extend_schema(
        operation_id="embedded_signup",
        summary="Finish an embedded sign-up",
        description="Exchanges the code for a token, subscribes to the account's notifications and registers the "
        "number. If the service makes a new PIN for the registration, only this answer shows it, as `pin`.",
        request=EmbeddedSignupIn,
        responses=SignedUpNumberOut,
    )
    @waits_for_upstream
    def embedded_signup(self, request: Request) -> Response:
        body = checked(EmbeddedSignupIn(data=request.data))
        number = onboarding.embedded_signup(**scope_of(request), actor=Actor.of(request), **body)
        return Response({**NumberOut(number).data, **_unshown_pin(number)})

    @extend_schema(
        operation_id="connect_account",
        summary="Connect an account by token or code",
        description="Checks the token, subscribes to the account's notifications and imports its numbers.",
        request=ConnectIn,
        responses=ConnectedAccountOut,
    )
    @waits_for_upstream
    def connect(self, request: Request) -> Response:
        body = checked(ConnectIn(data=request.data))
        numbers, held_elsewhere = onboarding.connect(**scope_of(request), actor=Actor.of(request), **body)
        return Response(
            ConnectedAccountOut(
                {"waba_id": body["waba_id"], "numbers": numbers, "held_elsewhere": held_elsewhere}
            ).data
        )

    @extend_schema(
        operation_id="migrate_number",
        summary="Move a number from another provider",
        description="Adds the number to the business account. Then verify the number and register it.",
        request=MigrateIn,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def migrate(self, request: Request) -> HttpResponseBase:
        body = checked(MigrateIn(data=request.data))
        return passed_through(registration.migrate(**scope_of(request), actor=Actor.of(request), **body))

    @extend_schema(
        operation_id="register_number",
        summary="Register a number",
        description="Registers the number with its six-digit PIN. Without `pin`, the service uses the stored PIN or "
        "makes a new one. Only this answer shows a new PIN, as `pin`.",
        request=RegisterIn,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def register(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        body = checked(RegisterIn(data=request.data))
        number = number_in(request, phone_number_id)
        response = passed_through(registration.register(number, actor=Actor.of(request), **body))
        if pin := _unshown_pin(number):
            response.content = orjson.dumps({**orjson.loads(response.content), **pin})
        return response

    @extend_schema(
        operation_id="deregister_number",
        summary="Deregister a number",
        description="Deregisters the number at Meta. The number cannot send until it is registered again.",
        request=None,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def deregister(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        return passed_through(
            registration.deregister(number_in(request, phone_number_id), actor=Actor.of(request))
        )

    @extend_schema(
        operation_id="request_verification_code",
        summary="Request a verification code",
        description="Asks Meta to send a verification code to the number, by SMS or voice call.",
        request=RequestCodeIn,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def request_code(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        body = checked(RequestCodeIn(data=request.data))
        return passed_through(registration.request_code(number_in(request, phone_number_id), **body))

    @extend_schema(
        operation_id="verify_number",
        summary="Verify a number with its code",
        description="Verifies the number with the code that Meta sent to it.",
        request=VerifyCodeIn,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def verify_code(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        body = checked(VerifyCodeIn(data=request.data))
        return passed_through(registration.verify_code(number_in(request, phone_number_id), **body))

    @extend_schema(
        operation_id="set_two_step_pin",
        summary="Set a number's two-step PIN",
        description="Sets the six-digit PIN of the number's two-step verification at Meta. The service stores the PIN "
        "encrypted for later registrations.",
        request=TwoStepIn,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def two_step(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        body = checked(TwoStepIn(data=request.data))
        return passed_through(
            registration.set_two_step_pin(
                number_in(request, phone_number_id), actor=Actor.of(request), **body
            )
        )

    @extend_schema(
        operation_id="subscribe_number",
        summary="Repair a number's subscription",
        description="Subscribes to the notifications of the number's account again, and updates the connection state.",
        request=None,
        responses=ConnectionOut,
    )
    @waits_for_upstream
    def subscribe(self, request: Request, phone_number_id: str) -> Response:
        return Response(ConnectionOut(health_and_profile.subscribe(number_in(request, phone_number_id))).data)


class AccountsView(ResourceViewSet):
    """A tenant's business accounts."""

    tag = "Numbers"
    scope = KeyScope.NUMBERS

    @extend_schema(
        operation_id="release_account",
        summary="Release a business account",
        description="Ends the subscription to the account's notifications at Meta, and deletes the account's token and "
        "all its numbers from the service. Events are kept.",
        responses={200: ReleasedAccountOut},
    )
    @waits_for_upstream
    def destroy(self, request: Request, waba_id: str) -> Response:
        account = health_and_profile.find_account(**scope_of(request), waba_id=waba_id)
        phone_number_ids = leaving.release_account(account, actor=Actor.of(request))
        return Response(
            ReleasedAccountOut(
                {"waba_id": waba_id, "phone_number_ids": phone_number_ids, "released": True}
            ).data
        )


class BusinessProfileView(UpstreamCallsView):
    """The business profile of a number. Requests and responses have Meta's own bodies."""

    tag = "Numbers"
    scope = KeyScope.NUMBERS

    @extend_schema(
        operation_id="get_business_profile",
        summary="Get a number's business profile",
        description="Returns the number's business profile, in Meta's own form.",
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def retrieve(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        return passed_through(health_and_profile.business_profile(number_in(request, phone_number_id)))

    @extend_schema(
        operation_id="update_business_profile",
        summary="Change a number's business profile",
        description="Changes the number's business profile. The body and the answer have Meta's own form.",
        request=OpenApiTypes.OBJECT,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def update(self, request: Request, phone_number_id: str) -> HttpResponseBase:
        body = request._request.body
        _ = request.data  # Rejects a body that is not a JSON object.
        return passed_through(
            health_and_profile.set_business_profile(number_in(request, phone_number_id), body=body)
        )


class ConnectSessionsView(ResourceViewSet):
    """Hosted links with which a business connects its account."""

    tag = "Connect sessions"
    scope = KeyScope.NUMBERS

    @extend_schema(
        operation_id="create_connect_session",
        summary="Create a connect session",
        description="Creates a link to a hosted page on which your customer connects a WhatsApp Business account. The "
        "link is valid for one hour.",
        request=ConnectSessionIn,
        responses={201: NewConnectSessionOut},
    )
    def create(self, request: Request) -> Response:
        require_session_allowed(**scope_of(request))
        body = checked(ConnectSessionIn(data=request.data))
        session = sessions.create(**scope_of(request), **body)
        return Response(NewConnectSessionOut(session).data, status=201)

    @extend_schema(
        operation_id="get_connect_session",
        summary="Get a connect session",
        description="Returns the status of the session, and the account and numbers that the customer connected.",
        responses=ConnectSessionOut,
    )
    def retrieve(self, request: Request, session_id: str) -> Response:
        session = sessions.find(**scope_of(request), session_id=session_id)
        return Response(ConnectSessionOut(session).data)


def number_in(request: Request, phone_number_id: str) -> PhoneNumber:
    """The caller's number in the path. Raises NotFound."""
    return health_and_profile.find(**scope_of(request), phone_number_id=phone_number_id)


def _unshown_pin(number: PhoneNumber) -> dict[str, str]:
    pin = onboarding.take_unshown_pin(number)
    return {} if pin is None else {"pin": pin}


class AdminNumbersView(ResourceViewSet):
    """All numbers, newest first, optionally filtered by connection state."""

    tag = "Admin"
    permission_classes = [StaffCaller]
    is_paged = False

    @extend_schema(
        operation_id="admin_list_numbers",
        summary="List the numbers of all tenants",
        description="Returns the numbers of all businesses, newest first, optionally only those of one connection "
        "state.",
        parameters=[AdminNumbersIn],
        responses=AdminNumberOut(many=True),
    )
    def list(self, request: Request) -> Response:
        query = checked(AdminNumbersIn(data=request.query_params))
        rows = (
            PhoneNumber.objects.filter(**query)
            .select_related("tenant")
            .only(*AdminNumberOut.COLUMNS)
            .order_by("-id")
        )
        return whole_list(AdminNumberOut(rows, many=True).data)
