"""Resumable uploads of the Graph API (upstream fact 1.4): a session, then the bytes, then a handle.

The caller names its own app in the path; the session is made at the service's. Its id is a secret of the upstream's
making, and the tenant's own token continues it.
"""

from typing import Any

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from gateway.api.authentication import caller_of, tenant_of
from gateway.api.errors import InvalidRequest
from gateway.api.json import object_of
from gateway.api.limits.body_size import CHUNKED
from gateway.api.limits.in_flight import waits_for_upstream
from gateway.api.validation import checked
from gateway.upstream.calls import GraphAnswer
from gateway.upstream.file_bodies import FileBody
from gateway.upstream.judging import judge, passed_through
from gateway.upstream.templates import TemplateGraph
from messaging.cloud_api.nodes import GraphView
from messaging.message_templates.operations import AccountChoice
from phone_numbers import tokens
from phone_numbers.models import BusinessAccount


class SessionIn(serializers.Serializer[dict[str, Any]]):
    """What a session is opened with, in the query or the body."""

    file_name = serializers.CharField(max_length=255, required=False, default="file")
    file_length = serializers.IntegerField(min_value=1)
    file_type = serializers.CharField(max_length=127)


class UploadSessionsView(GraphView):
    """`POST /{app}/uploads`."""

    @waits_for_upstream
    def post(self, request: Request) -> HttpResponseBase:
        asked = request.query_params.copy()
        asked.update(object_of(request))
        given = checked(SessionIn(data=asked))
        account = _account(request)
        return _answer(
            account,
            _graph(account).start_upload(
                name=given["file_name"], length=given["file_length"], mime_type=given["file_type"]
            ),
        )


class UploadSessionView(GraphView):
    """`GET` and `POST /upload:…`: how much has come, and the rest of it."""

    @waits_for_upstream
    def get(self, request: Request, session: str) -> HttpResponseBase:
        account = _account(request)
        return _answer(account, _graph(account).upload_offset(_signed(request, session)))

    @waits_for_upstream
    def post(self, request: Request, session: str) -> HttpResponseBase:
        http = request._request
        length = http.META.get("CONTENT_LENGTH") or ""
        if CHUNKED in http.META or not length.isdigit():
            raise InvalidRequest("An upload needs the header Content-Length.")
        account = _account(request)
        graph, signed = _graph(account), _signed(request, session)
        offset = http.META.get("HTTP_FILE_OFFSET")
        if offset is None:
            # Servers and proxies leave out headers with an underscore.
            answer = graph.upload_offset(signed)
            if not judge(answer).ok:
                return _answer(account, answer)
            offset = str(answer.json().get("file_offset"))
        if not offset.isdecimal():
            raise InvalidRequest.of(file_offset="Must be a number of bytes.")
        body = FileBody(http, length=int(length))  # type: ignore[arg-type]
        return _answer(account, graph.continue_upload(signed, body, offset=int(offset)))


def _account(request: Request) -> BusinessAccount:
    return AccountChoice(tenant_of(request).id, caller_of(request).effective_environment).any_account()


def _graph(account: BusinessAccount) -> TemplateGraph:
    return TemplateGraph(account.environment, account.access_token)


def _signed(request: Request, session: str) -> str:
    """A session's id as the upstream gave it, with its signature."""
    signature = request.query_params.get("sig")
    if signature is not None and not signature.replace("-", "").replace("_", "").isalnum():
        raise InvalidRequest.of(sig="Must be the signature of the session's id.")
    return f"upload:{session}?sig={signature}" if signature else f"upload:{session}"


def _answer(account: BusinessAccount, answer: GraphAnswer) -> HttpResponseBase:
    verdict = judge(answer)
    if verdict.token_problem:
        tokens.question(waba_id=account.waba_id, token=account.access_token)
    return passed_through(answer, verdict)
