"""Django's door to `GET /v1/events/stream`: what there is now, and the end; the client comes again by itself.

A web process gives a thread to each call, so it does not hold streams open: that is the edge's work.
"""

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request

from gateway.api.authentication import scope_of
from gateway.api.viewsets import ResourceViewSet
from gateway.database.statements import run
from webhooks.stream import reading, sse
from webhooks.stream.reading import Wanted
from webhooks.stream.stream_query import asked_of, place_of

MOST_PAGES = 10


class EventStreamView(ResourceViewSet):
    """The events of the caller's environment as server-sent events."""

    @extend_schema(
        operation_id="stream_events",
        summary="Listen to events as they happen",
        description="Server-sent events: `data` is the event exactly as webhooks deliver it, `id` the place in the "
        "stream. Send the last `id` as `Last-Event-ID` to go on without loss. One stream a key; a comment comes every "
        "15 seconds. An answer may end at any time, and is then to be asked for again after `retry` milliseconds.",
        tags=["Events"],
        parameters=[
            OpenApiParameter("type", str, description="Event types, separated by commas."),
            OpenApiParameter("phone_number_id", str, description="Events of this number alone."),
            OpenApiParameter(
                "Last-Event-ID",
                str,
                OpenApiParameter.HEADER,
                description="The last `id` of the stream, or the `id` of an event; without it the stream begins now.",
            ),
        ],
        responses={
            (200, sse.CONTENT_TYPE): OpenApiResponse(OpenApiTypes.STR, description="Server-sent events.")
        },
    )
    def listen(self, request: Request) -> HttpResponse:
        caller = scope_of(request)
        asked = asked_of(request._request.GET)
        position = run(place_of(request.headers.get("Last-Event-ID"), **caller))
        parts = [sse.opening(position)]
        for _ in range(MOST_PAGES):
            (page,) = run(reading.look([Wanted(**caller, after=position)])).pages
            for found in page:
                position = found.position
                if found.envelope is not None and asked.wants(found.type, found.phone_number_id):
                    parts.append(sse.event(position, found.envelope.body()))
            if len(page) < reading.PAGE:
                break
        return HttpResponse(b"".join([*parts, sse.heartbeat(position)]), headers=sse.HEADERS)
