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
    accepted = serializers.IntegerField(help_text="Events of the day.")
    with_endpoint = serializers.IntegerField(help_text="Those that at least one endpoint was to get.")
    without_endpoint = serializers.IntegerField(help_text="Those that no endpoint wanted at the time.")


class LedgerEndpointOut(serializers.Serializer[Any]):
    endpoint_id = serializers.UUIDField(help_text="Also of an endpoint that was deleted since.")
    accepted = serializers.IntegerField(help_text="Events that this endpoint was to get.")
    delivered = serializers.IntegerField(help_text="By the first delivery or by a replay.")
    waiting = serializers.IntegerField(help_text="Pending, or failed and to be tried again.")
    dead = serializers.IntegerField(help_text="Given up.")
    expired = serializers.IntegerField(help_text="Given up because the body was past its retention.")
    balanced = serializers.BooleanField(help_text="`accepted` is the sum of the other four.")


class LedgerSendsOut(serializers.Serializer[Any]):
    accepted = serializers.IntegerField(help_text="Messages that WhatsApp accepted, single and of batches.")
    failed = serializers.IntegerField(help_text="Batch items that were refused.")
    outcome_unknown = serializers.IntegerField(
        help_text="Batch items whose answer was lost; they are never sent again."
    )
    refused = serializers.IntegerField(
        allow_null=True,
        help_text="Single sends that WhatsApp refused, by the request log; null for a time that it does not cover.",
    )
    unanswered = serializers.IntegerField(
        allow_null=True,
        help_text="Single sends that ended as `meta_unreachable`, by the request log; null as `refused`.",
    )
    doubled = serializers.IntegerField(help_text="Messages that were recorded twice: always 0.")


class LedgerOut(serializers.Serializer[Any]):
    day = serializers.DateField()
    hour = serializers.IntegerField(allow_null=True)
    events = LedgerEventsOut()
    endpoints = LedgerEndpointOut(many=True)
    sends = LedgerSendsOut()
    balanced = serializers.BooleanField(help_text="Every endpoint is balanced and nothing was doubled.")


class UsageOut(serializers.Serializer[Any]):
    tenant_id = serializers.UUIDField()
    name = serializers.CharField()
    external_ref = serializers.CharField(allow_null=True)
    sent = serializers.IntegerField(help_text="Messages that WhatsApp accepted.")
    received = serializers.IntegerField(help_text="Messages from customers.")
    statuses = serializers.IntegerField(help_text="`message.status` events.")
    events = serializers.IntegerField(help_text="Events of all types.")
    deliveries = serializers.IntegerField(help_text="Deliveries that were made, replays included.")
    delivered = serializers.IntegerField(help_text="Those of them that were delivered so far.")


class LedgerView(ResourceViewSet):
    """The ledger of the caller's environment."""

    tag = "Ledger"
    scope = KeyScope.EVENTS

    @extend_schema(
        operation_id="get_ledger",
        summary="Account for every event of a day",
        description="For each endpoint: events accepted = delivered + waiting + dead + expired. The counts are made "
        "from the event log and the deliveries at the moment of the call. Days are days of UTC.",
        parameters=[
            OpenApiParameter(
                "day", date, description="E.g. `2026-11-21`, not in the future; today if left out."
            ),
            OpenApiParameter("hour", int, description="0 to 23: one hour of the day, for very busy days."),
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
        description="One item for each tenant, newest tenant first, for a day or a month of UTC. Figures are of the "
        "live environment, and for a sandbox tenant of the sandbox. A test key sees only sandbox tenants.",
        parameters=[
            OpenApiParameter("day", date, description="E.g. `2026-11-21`, not in the future."),
            OpenApiParameter(
                "month", str, description="E.g. `2026-11`; the current month if neither is given."
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
