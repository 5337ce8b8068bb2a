"""`/v1/events*`: the event log (specification 4; answers: decision "Events")."""

from typing import ClassVar

import orjson
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import scope_of
from gateway.api.pagination import NewestFirst, before_of, bounded_page, limit_of
from gateway.api.rendering import rendered
from gateway.api.viewsets import ResourceViewSet
from webhooks.endpoints.holds import with_holds
from webhooks.event_serializers import EventOut, OneEventOut
from webhooks.events import envelope, search
from webhooks.events.types import EVENT_TYPES
from webhooks.models import Event
from webhooks.serializers import DeliveryOut

FILTERS = ("phone_number_id", "waba_id", "wamid", "wa_id", "user_id")
LONGEST_FILTER = 512


def _equal(request: Request) -> dict[str, str]:
    """The columns that a list of events is filtered by."""
    given = {name: query.text(request, name, longest=LONGEST_FILTER) for name in FILTERS}
    given["wa_id"] = query.wa_id(request)
    return {name: value for name, value in given.items() if value is not None}


class EventsView(ResourceViewSet):
    """The events of the caller's environment, and the state of their deliveries."""

    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_events",
        summary="Search the event log",
        description="Newest first, without bodies, each with the counts of its deliveries. A request looks through at "
        "most 10,000 events: when few match, a page can hold fewer than `limit`, even none, while `next_cursor` is "
        "set: go on with it.",
        tags=["Events"],
        parameters=[
            OpenApiParameter("type", str, description="Event types, separated by commas."),
            *(OpenApiParameter(name, str) for name in FILTERS),
            OpenApiParameter("from", str, description="ISO 8601 date-time, inclusive."),
            OpenApiParameter("to", str, description="ISO 8601 date-time, exclusive."),
        ],
        responses=EventOut(many=True),
    )
    def list(self, request: Request) -> Response:
        caller = scope_of(request)
        begin, end = query.span(request)
        page = search.search(
            **caller,
            types=query.choices(request, "type", EVENT_TYPES) or (),
            equal=_equal(request),
            begin=begin,
            end=end,
            before=before_of(request, Event),
            limit=limit_of(request),
        )
        return bounded_page(
            rendered(EventOut, search.with_stored_state(page.rows, tenant_id=caller["tenant_id"])),
            page.before,
        )

    @extend_schema(
        operation_id="get_event",
        summary="Get an event",
        description="The envelope exactly as delivered, and every delivery of it.",
        tags=["Events"],
        responses=OneEventOut,
    )
    def retrieve(self, request: Request, event_id: str) -> Response:
        event = search.find(**scope_of(request), event_id=event_id)
        found = envelope.load([event.id])[event.id]
        deliveries = with_holds(search.deliveries(event), **scope_of(request))
        return Response(
            {
                "event": orjson.Fragment(found.body()) if found else None,
                "payload_available": found is not None,
                "deliveries": rendered(DeliveryOut, deliveries),
            }
        )
