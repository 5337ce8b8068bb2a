"""`/v1/requests*`: the calls that a business's keys made (decision "Request log")."""

import re
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import scope_of
from gateway.api.errors import InvalidRequest
from gateway.api.pagination import NewestFirst, before_of, bounded_page, limit_of
from gateway.api.rendering import rendered
from gateway.api.viewsets import ResourceViewSet
from gateway.request_log import search
from gateway.request_log.models import ApiRequest

_STATUS = re.compile(r"([1-5])(?:(\d\d)|xx)")
_TEXTS = {"method": 16, "route": 200, "error_code": 64, "key_prefix": 16}


class RequestOut(serializers.ModelSerializer[ApiRequest]):
    """A call of the API."""

    id = serializers.CharField(source="public_id", help_text="`X-Service-Request-Id` of its answer.")
    created_at = serializers.DateTimeField(help_text="When it arrived.")
    route = serializers.CharField(
        allow_null=True, help_text="The pattern of its path; null for a path that no route has."
    )
    error_code = serializers.CharField(
        allow_null=True, help_text="The service's code, or the upstream's number as text."
    )
    key_prefix = serializers.CharField(
        allow_null=True, help_text="First characters of the API key; null for a console token."
    )
    environment = serializers.CharField(help_text="`live` or `test`.")
    service_ms = serializers.FloatField(source="own_ms", help_text="Milliseconds in the service.")
    upstream_ms = serializers.FloatField(help_text="Milliseconds of waiting for the upstream.")

    class Meta:
        model = ApiRequest
        fields = (
            "id",
            "created_at",
            "method",
            "route",
            "status",
            "error_code",
            "key_prefix",
            "environment",
            "service_ms",
            "upstream_ms",
        )


class RequestsView(ResourceViewSet):
    """The calls of the caller's environment in the last days, refused ones included."""

    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_requests",
        summary="List the calls of the last days",
        description="Every call that acted on the business, newest first, within about a second of its end. With "
        "filters a page can be short, or empty, before the last one: go on while `next_cursor` is not null.",
        tags=["Requests"],
        parameters=[
            OpenApiParameter("method", str, description="E.g. `POST`."),
            OpenApiParameter(
                "route", str, description="The pattern of the path, e.g. `/v1/numbers/{phone_number_id}`."
            ),
            OpenApiParameter("status", str, description="A status (`409`) or a class of them (`4xx`)."),
            OpenApiParameter("error_code", str, description="E.g. `number_not_connected`, or `131047`."),
            OpenApiParameter("key_prefix", str, description="The `prefix` of an API key."),
            OpenApiParameter("from", str, description="ISO 8601 date-time, inclusive."),
            OpenApiParameter("to", str, description="ISO 8601 date-time, exclusive."),
        ],
        responses=RequestOut(many=True),
    )
    def list(self, request: Request) -> Response:
        equal: dict[str, Any] = {
            name: value
            for name, longest in _TEXTS.items()
            if (value := query.text(request, name, longest=longest)) is not None
        }
        begin, end = query.span(request)
        page = search.search(
            **scope_of(request),
            equal=equal | _status(request),
            begin=begin,
            end=end,
            before=before_of(request, ApiRequest),
            limit=limit_of(request),
        )
        return bounded_page(rendered(RequestOut, page.rows), page.before)

    @extend_schema(
        operation_id="get_request",
        summary="Get a call by its request id",
        description="The line of the request log with this `X-Service-Request-Id`.",
        tags=["Requests"],
        responses=RequestOut,
    )
    def retrieve(self, request: Request, request_id: str) -> Response:
        return Response(RequestOut(search.find(**scope_of(request), request_id=request_id)).data)


def _status(request: Request) -> dict[str, int]:
    text = query.text(request, "status")
    if text is None:
        return {}
    found = _STATUS.fullmatch(text)
    if found is None:
        raise InvalidRequest.of(status="Must be a status such as 409, or a class such as 4xx.")
    return {"status": int(text)} if found[2] else {"status_class": int(found[1])}
