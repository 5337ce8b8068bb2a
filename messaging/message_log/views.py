"""`GET /v1/messages*` and a number's customers: sent and received messages, and data about each customer."""

from datetime import datetime
from typing import Any, ClassVar, get_args

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from gateway import ids
from gateway.api import query
from gateway.api.authentication import caller_of, filtered_number, scope_of
from gateway.api.errors import NotFound
from gateway.api.pagination import NewestFirst, before_of, bounded_page, limit_of, represent
from gateway.api.viewsets import ResourceViewSet
from gateway.roles import KeyScope
from gateway.upstream.notifications.change import STATUSES, Direction
from messaging import opt_outs
from messaging.message_log import customers, detail, message_search
from messaging.message_log.serializers import (
    CustomerOut,
    DetailOut,
    MessageOut,
    OneMessageOut,
    OptedOutCustomerOut,
)
from webhooks.models import Message

LONGEST_TEMPLATE = 512


class MessageLogView(ResourceViewSet):
    """Search sent and received messages and their statuses."""

    tag = "Messages"
    scope = KeyScope.MESSAGES
    limited_actions = frozenset({"list", "retrieve"})
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_messages",
        summary="List messages",
        description="Returns the messages without their contents, newest first. Any page can hold fewer messages than "
        "`limit`, or none. Continue until `next_cursor` is null.",
        parameters=[
            OpenApiParameter("phone_number_id", str),
            OpenApiParameter(
                "wa_id", str, description="Only messages from or to the customer with this number, in digits."
            ),
            OpenApiParameter(
                "user_id", str, description="Only messages from or to the customer with this user id."
            ),
            OpenApiParameter("direction", str, enum=get_args(Direction)),
            OpenApiParameter("status", str, enum=STATUSES),
            OpenApiParameter("template", str, description="Only messages of the template with this name."),
            OpenApiParameter("batch_id", str),
            OpenApiParameter(
                "referral_source_id",
                str,
                description="Only messages that came with the ad or post with this id of Meta's.",
            ),
            OpenApiParameter("from", datetime, description=query.FROM),
            OpenApiParameter("to", datetime, description=query.TO),
        ],
        responses=MessageOut(many=True),
    )
    def list(self, request: Request) -> Response:
        equal: dict[str, Any] = {
            "phone_number_id": filtered_number(caller_of(request), query.text(request, "phone_number_id")),
            "wa_id": query.wa_id(request),
            "user_id": query.text(request, "user_id"),
            "direction": query.choice(request, "direction", get_args(Direction)),
            "template": query.text(request, "template", longest=LONGEST_TEMPLATE),
            "batch_id": query.public_id(request, "batch_id", ids.BATCH),
            "referral_source_id": query.text(request, "referral_source_id"),
        }
        begin, end = query.span(request)
        page = message_search.search(
            **scope_of(request),
            equal={name: value for name, value in equal.items() if value is not None},
            status=query.choice(request, "status", STATUSES),
            begin=begin,
            end=end,
            before=before_of(request, Message),
            limit=limit_of(request),
        )
        return bounded_page(request, represent(MessageOut, page.rows), page.before)

    @extend_schema(
        operation_id="get_message",
        summary="Get a message",
        description="Returns the status of the message with times, errors as WhatsApp describes them, the events with "
        "their deliveries, and the content while it is stored. Percent-encode the wamid in the path, because it can "
        "contain `=`, `/` and `+`.",
        responses=OneMessageOut,
    )
    def retrieve(self, request: Request, message_id: str) -> Response:
        row = message_search.find(**scope_of(request), key=message_id)
        if not caller_of(request).reaches(row.phone_number_id):
            raise NotFound("There is no such message.")
        found = detail.load(row)
        return Response({**represent(MessageOut, [found.row])[0], **represent(DetailOut, [found])[0]})


class OptOutsView(ResourceViewSet):
    """The customers who opted out of marketing messages."""

    tag = "Messages"
    scope = KeyScope.MESSAGES
    limited_actions = frozenset({"list"})
    pagination_class: ClassVar = NewestFirst

    @extend_schema(
        operation_id="list_opt_outs",
        summary="List opt-outs",
        description="Returns the customers who want no marketing messages from a number, the newest opt-out first. "
        "Customers opt out in WhatsApp's settings or with a stop word. Only a batch with `skip_opted_out` skips these "
        "customers.",
        parameters=[
            OpenApiParameter("phone_number_id", str),
            OpenApiParameter(
                "source", str, enum=opt_outs.SOURCES, description="Only customers who opted out in this way."
            ),
        ],
        responses=OptedOutCustomerOut(many=True),
    )
    def list(self, request: Request) -> Response:
        number = filtered_number(caller_of(request), query.text(request, "phone_number_id"))
        rows = opt_outs.opted_out(**scope_of(request))
        if number is not None:
            rows = rows.filter(phone_number_id=number)
        match query.choice(request, "source", opt_outs.SOURCES):
            case "whatsapp":
                rows = rows.filter(reported_stop=True)
            case "stop_word":
                rows = rows.filter(reported_stop=False)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(rows, request)
        return paginator.get_paginated_response(OptedOutCustomerOut(page, many=True).data)


class CustomersView(ResourceViewSet):
    """The customers of a number."""

    tag = "Messages"
    scope = KeyScope.MESSAGES

    @extend_schema(
        operation_id="get_customer",
        summary="Get a customer of a number",
        description="Returns when the customer and you last wrote, the end of the 24-hour window, whether the customer "
        "stopped marketing messages, the last ad that the customer came from, and the known ids. The path names the "
        "customer by wa_id or user_id. For a customer without messages, the members about messages are null.",
        responses=CustomerOut,
    )
    def retrieve(self, request: Request, phone_number_id: str, customer_id: str) -> Response:
        found = customers.find(**scope_of(request), phone_number_id=phone_number_id, customer_id=customer_id)
        return Response(CustomerOut(found).data)
