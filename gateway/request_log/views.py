"""The API of the request log: a search in keyset pages, and one logged request by its id."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.db import connections
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from gateway import ids
from gateway.api import query
from gateway.api.authentication import scope_of
from gateway.api.errors import InvalidRequest, NotFound
from gateway.api.pagination import NewestFirst, before_of, bounded_page, limit_of, represent
from gateway.api.viewsets import ResourceViewSet
from gateway.clock import now
from gateway.database import replica
from gateway.database.bounded_walk import LAST_ID, MOST_WALKED, BoundedList, Page, Walk
from gateway.database.statements import StoredRows
from gateway.request_log.models import ApiRequest
from gateway.roles import KeyScope

# --- Search of the request log: keyset pages. Each page reads a bounded number of calls (`bounded_walk`).

FILTERS: Mapping[str, str] = {
    "method": "method = %(method)s",
    "route": "route = %(route)s",
    "status": "status = %(status)s",
    "status_class": "status / 100 = %(status_class)s",
    "error_code": "error_code = %(error_code)s",
    "key_prefix": "key_prefix = %(key_prefix)s",
}
# In a day's small partition, the planner may prefer the primary key. A walk by the primary key passes the calls of all
# other tenants.
_CALLS = BoundedList(StoredRows(ApiRequest), plans_once=False)
_WALK = Walk("tenant_id = %(tenant_id)s AND environment = %(environment)s")


_BY_KEY = """
SELECT key_prefix, count(*) FROM (
    SELECT key_prefix FROM api_requests WHERE tenant_id = %s AND environment = %s AND id >= %s
    ORDER BY id DESC LIMIT %s
) AS walked GROUP BY key_prefix
"""


def counts_by_key(*, tenant_id: UUID, environment: str) -> dict[str, int]:
    """How many calls each key made, by the key's prefix. Counts the newest `MOST_WALKED` calls of the last
    `REQUEST_LOG_DAYS`.
    """
    first = ids.first_at(_oldest(now()))

    def ask(alias: str) -> list[Any]:
        with connections[alias].cursor() as cursor:
            cursor.execute(_BY_KEY, [tenant_id, environment, first, MOST_WALKED])
            return list(cursor.fetchall())

    return {prefix: count for prefix, count in replica.read(ask) if prefix}


def search(
    *,
    tenant_id: UUID,
    environment: str,
    equal: Mapping[str, Any],
    begin: datetime | None = None,
    end: datetime | None = None,
    before: UUID | None = None,
    limit: int,
) -> Page[ApiRequest]:
    """A tenant's calls of one environment in the last `REQUEST_LOG_DAYS`, newest first. `equal` filters by
    `FILTERS`.
    """
    moment = now()
    first = max(_oldest(moment), begin or _oldest(moment))
    last = min(moment + timedelta(minutes=1), end or moment + timedelta(minutes=1))
    return replica.read(
        lambda alias: _CALLS.page(
            [_WALK],
            conditions=[FILTERS[name] for name in equal],
            parameters={"tenant_id": tenant_id, "environment": environment, **equal},
            first=ids.first_at(first),
            before=min(before or LAST_ID, ids.first_at(last)),
            limit=limit,
            using=alias,
        )
    )


def find(*, tenant_id: UUID, environment: str, request_id: str) -> ApiRequest:
    """A tenant's call in one environment by its request id. Raises NotFound."""
    key = ids.decode(ids.REQUEST, request_id)
    found = None
    if key is not None and key >= ids.first_at(_oldest(now())):
        found = ApiRequest.objects.for_environment(tenant_id, environment).filter(pk=key).first()
    if found is None:
        raise NotFound("There is no such request.")
    return found


def _oldest(moment: datetime) -> datetime:
    return moment - timedelta(days=settings.REQUEST_LOG_DAYS)


# --- `/v1/requests*`: the calls made with a tenant's keys (decision "Request log").

_STATUS = re.compile(r"([1-5])(?:(\d\d)|xx)")
_TEXTS = {"method": 16, "route": 200, "error_code": 64, "key_prefix": 16}


class RequestOut(serializers.ModelSerializer[ApiRequest]):
    """A call of the API."""

    id = serializers.CharField(
        source="public_id",
        help_text="The id of the call. The call's response has it in `X-Service-Request-Id`.",
    )
    created_at = serializers.DateTimeField(help_text="When the call arrived: ISO 8601, in UTC.")
    route = serializers.CharField(
        allow_null=True, help_text="The pattern of the call's path; null for an unknown path."
    )
    error_code = serializers.CharField(
        allow_null=True,
        help_text="The code of the error: the service's code, or WhatsApp's number as a string; null without an error.",
    )
    key_prefix = serializers.CharField(
        allow_null=True,
        help_text="The first characters of the API key; null for a call with a console token.",
    )
    environment = serializers.CharField(help_text="The environment of the call: `live` or `test`.")
    service_ms = serializers.FloatField(source="own_ms", help_text="Milliseconds spent in the service.")
    upstream_ms = serializers.FloatField(help_text="Milliseconds spent waiting for WhatsApp.")

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
    """The calls of the caller's environment in the last days, including rejected calls."""

    tag = "Requests"
    scope = KeyScope.EVENTS
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_requests",
        summary="List the calls of the last days",
        description="Returns every call that acted on the business, newest first. A call appears about a second "
        "after it ended. With filters, any page can hold fewer calls than `limit`, or none. Continue until "
        "`next_cursor` is null.",
        parameters=[
            OpenApiParameter("method", str, description="Only calls with this HTTP method, such as `POST`."),
            OpenApiParameter(
                "route",
                str,
                description="Only calls whose path has this pattern, such as `/v1/numbers/{phone_number_id}`.",
            ),
            OpenApiParameter(
                "status",
                str,
                description="Only calls with this HTTP status, such as `409`, or with a status of this class, such "
                "as `4xx`.",
            ),
            OpenApiParameter(
                "error_code",
                str,
                description="Only calls with this error code, such as `number_not_connected` or `131047`.",
            ),
            OpenApiParameter("key_prefix", str, description="Only calls with the API key of this `prefix`."),
            OpenApiParameter("from", datetime, description=query.FROM),
            OpenApiParameter("to", datetime, description=query.TO),
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
        page = search(
            **scope_of(request),
            equal=equal | _status(request),
            begin=begin,
            end=end,
            before=before_of(request, ApiRequest),
            limit=limit_of(request),
        )
        return bounded_page(request, represent(RequestOut, page.rows), page.before)

    @extend_schema(
        operation_id="get_request",
        summary="Get a call by the request id",
        description="Returns the call whose answer carried this `X-Service-Request-Id`.",
        responses=RequestOut,
    )
    def retrieve(self, request: Request, request_id: str) -> Response:
        return Response(RequestOut(find(**scope_of(request), request_id=request_id)).data)


def _status(request: Request) -> dict[str, int]:
    text = query.text(request, "status")
    if text is None:
        return {}
    found = _STATUS.fullmatch(text)
    if found is None:
        raise InvalidRequest.of(status="Must be a status such as 409, or a class such as 4xx.")
    return {"status": int(text)} if found[2] else {"status_class": int(found[1])}
