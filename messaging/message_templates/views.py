"""`/v1/templates*` (specification 4). A template of the caller's other environment is answered with 404."""

import re
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.api import query
from gateway.api.authentication import caller_of, tenant_of
from gateway.api.errors import InvalidRequest
from gateway.api.json import object_of
from gateway.api.limits import limited_by, waits_for_upstream
from gateway.api.pagination import NewestFirst
from gateway.roles import KeyScope
from gateway.upstream.calls import passed_through
from messaging.media import uploads
from messaging.message_templates import template_management
from messaging.message_templates.mirror import language_of
from messaging.message_templates.template_management import AccountChoice
from messaging.models import MessageTemplate
from messaging.sending import outbound
from phone_numbers.views import VERBATIM, UpstreamCallsView

# --- JSON bodies of the template routes, where they differ from Meta's own (docs/templates.md).


class TemplateOut(serializers.Serializer[Any]):
    """WhatsApp's template object as it was last received. It can lack these members and can have others."""

    id = serializers.CharField()
    name = serializers.CharField()
    language = serializers.CharField(required=False)
    status = serializers.CharField(required=False)
    category = serializers.CharField(required=False)
    components = serializers.ListField(child=serializers.DictField(), required=False)


class SyncOut(serializers.Serializer[Any]):
    synced = serializers.IntegerField(help_text="How many templates WhatsApp has.")
    added = serializers.IntegerField()
    updated = serializers.IntegerField()
    removed = serializers.IntegerField()
    failed = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Meta's ids of the business accounts that could not be read. Absent when all could be read.",
    )


class SampleIn(serializers.Serializer[Any]):
    file = serializers.FileField()
    type = serializers.CharField(
        required=False, help_text="The media type. Required when the file part has no `Content-Type`."
    )
    waba_id = serializers.CharField(required=False)


ACCOUNT = [
    OpenApiParameter(
        "waba_id",
        str,
        description="Meta's id of the business account. `waba_id` or `from` chooses among several.",
    ),
    OpenApiParameter("from", str, description="A number of the business account, instead of `waba_id`."),
]
_WORDS = re.compile(r"[A-Za-z_]{1,64}(,[A-Za-z_]{1,64}){0,19}")


class TemplatesView(UpstreamCallsView):
    """A tenant's message templates. The list comes from the mirror; all other answers are the upstream's own."""

    tag = "Templates"
    scope = KeyScope.TEMPLATES

    @extend_schema(
        operation_id="list_templates",
        summary="List message templates",
        description="Returns the templates from the service's copy, newest first.",
        parameters=[
            *ACCOUNT,
            OpenApiParameter("name", str, description="Only templates whose name contains this text."),
            OpenApiParameter(
                "status",
                str,
                description="Only templates with one of these statuses, separated by commas: `APPROVED,PAUSED`.",
            ),
            OpenApiParameter(
                "category",
                str,
                description="Only templates of one of these categories, separated by commas: `MARKETING,UTILITY`.",
            ),
            OpenApiParameter(
                "language", str, description="Only templates in this language, such as `en_US` or `en-US`."
            ),
        ],
        responses=TemplateOut(many=True),
    )
    def list(self, request: Request) -> Response:
        choice = _choice(request)
        rows = MessageTemplate.objects.for_environment(choice.tenant_id, choice.environment)
        if choice.waba_id is not None or choice.from_ is not None:
            rows = rows.filter(account__in=choice.accounts())
        paginator = NewestFirst()
        page = paginator.paginate_queryset(_filtered(rows, request), request)
        return paginator.get_paginated_response([template_management.rendered(row) for row in page])

    @extend_schema(
        operation_id="create_template",
        summary="Submit a message template",
        description="Submits a template to WhatsApp for review. The body is WhatsApp's own. `waba_id` or `from`, in "
        "the query or in the body, chooses the business account and is not passed on to WhatsApp.",
        parameters=ACCOUNT,
        request=OpenApiTypes.OBJECT,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def create(self, request: Request) -> HttpResponseBase:
        raw = request._request.body or b"{}"
        members = object_of(request)
        account = _choice(request, members).account()
        body = outbound.without(raw, "waba_id", "from")
        return passed_through(template_management.create(account, body=body, members=members))

    @extend_schema(
        operation_id="get_template",
        summary="Get a message template",
        description="Returns the template as WhatsApp has it now. The path names it by WhatsApp's template id.",
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def retrieve(self, request: Request, template_id: str) -> HttpResponseBase:
        return passed_through(template_management.get(_template(request, template_id)))

    @extend_schema(
        operation_id="edit_template",
        summary="Edit a message template",
        description="Changes the template at WhatsApp, which then reviews it again. The body is WhatsApp's own.",
        request=OpenApiTypes.OBJECT,
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def edit(self, request: Request, template_id: str) -> HttpResponseBase:
        raw = request._request.body or b"{}"
        members = object_of(request)
        template = _template(request, template_id)
        body = outbound.without(raw, "waba_id", "from")
        return passed_through(template_management.edit(template, body=body, members=members))

    @extend_schema(
        operation_id="delete_template",
        summary="Delete a message template",
        description="Deletes this language of the template. With `all_languages=true` it deletes all templates of the "
        "same name.",
        parameters=[
            OpenApiParameter(
                "all_languages", bool, description="Whether to delete all languages of the template's name."
            )
        ],
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def destroy(self, request: Request, template_id: str) -> HttpResponseBase:
        all_languages = query.flag(request, "all_languages")
        template = _template(request, template_id)
        return passed_through(template_management.delete(template, all_languages=all_languages))

    @extend_schema(
        operation_id="sync_templates",
        summary="Re-read templates from WhatsApp",
        description="Updates the service's copy of the templates from one business account or from all. It also "
        "imports templates that were created elsewhere.",
        parameters=ACCOUNT,
        request=None,
        responses=SyncOut,
    )
    @waits_for_upstream
    def sync(self, request: Request) -> Response:
        return Response(template_management.sync_now(_choice(request, object_of(request))))

    @extend_schema(
        operation_id="browse_template_library",
        summary="Browse WhatsApp's template library",
        description="Returns the templates that WhatsApp offers, in WhatsApp's own form.",
        parameters=[
            *ACCOUNT,
            *(OpenApiParameter(name, str) for name in template_management.LIBRARY_PARAMETERS),
        ],
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def library(self, request: Request) -> HttpResponseBase:
        account = _choice(request).any_account()
        return passed_through(template_management.library(account, request.query_params.dict()))


@limited_by(uploads.MAX_REQUEST_BYTES)
class TemplateSamplesView(UpstreamCallsView):
    """Samples for headers: the request has a file, the answer has a handle."""

    tag = "Templates"
    scope = KeyScope.TEMPLATES
    parser_classes = [MultiPartParser]

    @extend_schema(
        operation_id="upload_template_sample",
        summary="Upload a header sample",
        description="Uploads an example file for the header of a template. Returns the handle that the template needs.",
        parameters=ACCOUNT,
        request={"multipart/form-data": SampleIn},
        responses={200: VERBATIM},
    )
    @waits_for_upstream
    def create(self, request: Request) -> HttpResponseBase:
        form = uploads.form_of(request)
        upload = uploads.upload_of(request, form, default_name="sample")
        return passed_through(template_management.upload_sample(_choice(request, form).any_account(), upload))


def _choice(request: Request, members: dict[str, Any] | None = None) -> AccountChoice:
    """The account that the caller named, in the query or else in the body."""
    named = {}
    for name in ("waba_id", "from"):
        value = query.text(request, name, longest=100)
        if value is None and members is not None:
            value = members.get(name)
        if value is not None and (not isinstance(value, str) or not value.strip() or "\0" in value):
            raise InvalidRequest.of(**{name: "Must be a string that is not empty."})
        named[name] = value.strip() if value else None
    return AccountChoice(
        tenant_id=tenant_of(request).id,
        environment=caller_of(request).effective_environment,
        waba_id=named["waba_id"],
        from_=named["from"],
    )


def _template(request: Request, template_id: str) -> MessageTemplate:
    return template_management.find(
        tenant_id=tenant_of(request).id,
        environment=caller_of(request).effective_environment,
        template_id=template_id,
    )


def _filtered(rows: "QuerySet[MessageTemplate]", request: Request) -> "QuerySet[MessageTemplate]":
    if name := query.text(request, "name", longest=512):
        rows = rows.filter(name__icontains=name)
    for column in ("status", "category"):
        if words := _words(request, column):
            rows = rows.filter(**{f"{column}__in": words})
    if language := query.text(request, "language", longest=32):
        rows = rows.filter(Q(language__iexact=language_of(language)))
    return rows


def _words(request: Request, name: str) -> list[str] | None:
    """Values separated by commas, in upper case like Meta's. None when the parameter is absent. Unknown values are
    allowed, because Meta may add values.
    """
    text = query.text(request, name)
    if not text:
        return None
    if not _WORDS.fullmatch(text):
        raise InvalidRequest.of(**{name: "Must be one word of WhatsApp, or several with commas."})
    return text.upper().split(",")
