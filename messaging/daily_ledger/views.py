"""`/v1/ledger` and `/v1/usage`: exact figures, counted from the tables (decision "Ledger")."""

from datetime import date
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import AppCaller, caller_of, scope_of
from gateway.api.errors import InvalidRequest
from gateway.api.pagination import NewestFirst
from gateway.api.viewsets import ResourceViewSet
from gateway.clock import now
from gateway.roles import KeyScope
from messaging.daily_ledger import tally
from messaging.daily_ledger.tally import counting, day_of, month_of, refusal_of
from tenants.models import Tenant


class LedgerEventsOut(serializers.Serializer[Any]):
    accepted = serializers.IntegerField(help_text="How many events were recorded in the period.")
    with_endpoint = serializers.IntegerField(
        help_text="How many of these events were to be delivered to at least one endpoint."
    )
    without_endpoint = serializers.IntegerField(
        help_text="How many of these events no endpoint received, because none asked for them at the time."
    )


class LedgerEndpointOut(serializers.Serializer[Any]):
    endpoint_id = serializers.UUIDField(
        help_text="The id of the webhook endpoint, a UUID. The endpoint may have been deleted since."
    )
    accepted = serializers.IntegerField(help_text="How many events were to be delivered to the endpoint.")
    delivered = serializers.IntegerField(
        help_text="How many of these events were delivered, by the original delivery or by a replay."
    )
    waiting = serializers.IntegerField(
        help_text="How many of these events wait for their first attempt or for a retry."
    )
    dead = serializers.IntegerField(help_text="How many of these events were given up after failed attempts.")
    expired = serializers.IntegerField(
        help_text="How many of these events were given up because their bodies were no longer stored."
    )
    balanced = serializers.BooleanField(
        help_text="Whether `accepted` is the sum of `delivered`, `waiting`, `dead` and `expired`."
    )


class LedgerSendsOut(serializers.Serializer[Any]):
    accepted = serializers.IntegerField(
        help_text="How many messages WhatsApp accepted: single messages and messages of batches."
    )
    failed = serializers.IntegerField(help_text="How many messages of batches WhatsApp rejected.")
    outcome_unknown = serializers.IntegerField(
        help_text="How many messages of batches got no usable answer. They are never sent again."
    )
    refused = serializers.IntegerField(
        allow_null=True,
        help_text="How many single messages WhatsApp rejected, as the request log says; null when the log does not "
        "cover the period.",
    )
    unanswered = serializers.IntegerField(
        allow_null=True,
        help_text="How many single messages ended with `meta_unreachable`, as the request log says; null when the "
        "log does not cover the period.",
    )
    doubled = serializers.IntegerField(
        help_text="How many messages were recorded twice. Anything but 0 is an error of the service."
    )


class LedgerOut(serializers.Serializer[Any]):
    day = serializers.DateField()
    hour = serializers.IntegerField(allow_null=True)
    events = LedgerEventsOut()
    endpoints = LedgerEndpointOut(many=True)
    sends = LedgerSendsOut()
    balanced = serializers.BooleanField(help_text="Whether every endpoint is balanced and `doubled` is 0.")


class UsageOut(serializers.Serializer[Any]):
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    external_ref = serializers.CharField(allow_null=True)
    sent = serializers.IntegerField(help_text="How many messages WhatsApp accepted.")
    received = serializers.IntegerField(help_text="How many messages customers sent.")
    statuses = serializers.IntegerField(help_text="How many `message.status` events were recorded.")
    events = serializers.IntegerField(help_text="How many events of all types were recorded.")
    deliveries = serializers.IntegerField(help_text="How many deliveries were created, replays included.")
    delivered = serializers.IntegerField(help_text="How many of these deliveries have been delivered so far.")


class LedgerView(ResourceViewSet):
    """The ledger of the caller's environment."""

    tag = "Ledger"
    scope = KeyScope.EVENTS

    @extend_schema(
        operation_id="get_ledger",
        summary="Account for every event of a day",
        description="Counts the events and messages of a day in UTC by outcome. For each endpoint, `accepted` is the "
        "sum of `delivered`, `waiting`, `dead` and `expired`. The call counts the event log and the deliveries as "
        "they are now.",
        parameters=[
            OpenApiParameter(
                "day", date, description="The day to count, such as `2026-11-21`. Left out, it is today."
            ),
            OpenApiParameter(
                "hour", int, description="Only this hour of the day, 0 to 23. Use it for very busy days."
            ),
        ],
        responses=LedgerOut,
    )
    def retrieve(self, request: Request) -> Response:
        wanted = _day(request) or now().date()
        hour = query.integer(request, "hour", least=0, most=23)
        with counting(instead="Ask for each `hour` of the day.") as counted:
            ledger = tally.count_events(counted, **scope_of(request), span=day_of(wanted, hour))
        endpoints = [
            {
                "endpoint_id": endpoint_id,
                "accepted": line.accepted,
                **{state: line.states[state] for state in tally.STATES},
                "balanced": line.balanced,
            }
            for endpoint_id, line in sorted(ledger.endpoints.items())
        ]
        answer = {
            "day": wanted,
            "hour": hour,
            "events": {
                "accepted": ledger.events,
                "with_endpoint": ledger.routed,
                "without_endpoint": ledger.unwanted,
            },
            "endpoints": endpoints,
            "sends": {
                "accepted": ledger.sent,
                "failed": ledger.failed,
                "outcome_unknown": ledger.unknown,
                "refused": ledger.refused,
                "unanswered": ledger.unanswered,
                "doubled": ledger.doubled,
            },
            "balanced": ledger.balanced,
        }
        return Response(LedgerOut(answer).data)


class UsageView(ResourceViewSet):
    """The usage of a platform's tenants."""

    tag = "Tenants"
    permission_classes = [AppCaller]
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_usage",
        summary="List the usage of the platform's tenants",
        description="Returns one entry for each business, the newest business first. An entry counts a day or a "
        "month in UTC. It counts the live environment, or the sandbox for a business that works only there. With a "
        "test key, only businesses that work only in the sandbox are returned.",
        parameters=[
            OpenApiParameter("day", date, description="The day to count, such as `2026-11-21`."),
            OpenApiParameter(
                "month",
                str,
                description="The month to count, such as `2026-11`. Without `day` and `month` it is the current month.",
            ),
        ],
        responses=UsageOut(many=True),
    )
    def list(self, request: Request) -> Response:
        wanted, month = _day(request), _month(request)
        if wanted is not None and month is not None:
            raise InvalidRequest.of(month="Give either a day or a month.")
        span = day_of(wanted) if wanted else month_of(month or now().date().replace(day=1))
        caller = caller_of(request)
        assert caller.app_id is not None  # noqa: S101 - AppCaller guarantees it
        tenants = Tenant.objects.for_app(caller.app_id)
        if caller.environment == "test":
            tenants = tenants.filter(sandbox=True)
        pages = NewestFirst()
        rows = pages.paginate_queryset(tenants, request)
        with counting(instead="Ask for single days, or with a smaller `limit`.") as counted:
            lines = tally.count_usage(counted, tenants=rows, span=span)
        return pages.get_paginated_response(UsageOut(lines, many=True).data)


def _day(request: Request) -> date | None:
    text = query.text(request, "day")
    if text is None:
        return None
    return _date(text, "day", "2026-11-21")


def _month(request: Request) -> date | None:
    text = query.text(request, "month")
    if text is None:
        return None
    return _date(f"{text}-01", "month", "2026-11")


def _date(text: str, name: str, example: str) -> date:
    try:
        value = date.fromisoformat(text)
    except ValueError:
        value = None
    # `fromisoformat` also accepts week dates and dates without dashes.
    if value is None or value.isoformat() != text:
        raise InvalidRequest.of(**{name: f"Must be a {name} such as {example}."})
    if (refusal := refusal_of(value)) is not None:
        raise InvalidRequest.of(**{name: refusal})
    return value
