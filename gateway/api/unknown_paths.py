"""The response to a path without a route: 401 without credentials under `/v1`, otherwise 404 with the likely path."""

import re
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from gateway.api.authentication import Caller
from gateway.api.errors import NotFound, Unauthorized, error_response

_GRAPH_MESSAGES = re.compile(r"^(?:/v\d+(?:\.\d)?)?/\d+/messages/?$")
_VERSIONS = re.compile(r"^(?:/api|/v\d+(?:\.\d)?)+(?=/)", re.IGNORECASE)
"""A prefix that a caller's base URL puts before a path of the service: `/api` or Meta's version."""
_WORD = re.compile(r"/[A-Za-z-]+(?=/|$)")
"""A part of a path that is not an id. Parts are compared in lower case, which would break an id."""


def answer(request: HttpRequest, exception: BaseException | None = None) -> HttpResponse:
    """Django's `handler404` for callers of the API."""
    if request.path.startswith("/v1/"):
        response: HttpResponse = UnknownPath.as_view()(request)
        return response
    return error_response(_not_found(request.path), request)


class _AnyCaller(BasePermission):
    """Any caller with valid credentials."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.user, Caller):
            raise Unauthorized
        return True


class UnknownPath(APIView):
    """A path under `/v1` without a route. A caller without credentials learns nothing about routes."""

    permission_classes = [_AnyCaller]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise _not_found(request.path)


def _not_found(path: str) -> NotFound:
    likely = _likely(path)
    text = f"There is nothing at {path[:200]}."
    return NotFound(
        f"{text} Did you mean {likely}?" if likely else text,
        hint=f"Check the id and the path: the operations are at {settings.BASE_URL}/docs.",
    )


def _likely(path: str) -> str | None:
    """The path that the caller probably meant. None unless the path shows a common mistake."""
    if _GRAPH_MESSAGES.match(path):
        return "POST /v1/messages with the number as `from`"
    bare = _WORD.sub(lambda word: word[0].lower(), re.sub("/+", "/", path).rstrip("/"))
    singular = f"/v1{_VERSIONS.sub('', bare)}"
    for candidate in (singular, re.sub(r"^/v1/[a-z-]+", r"\g<0>s", singular)):
        if candidate != path and _exists(candidate):
            return candidate
    return None


def _exists(path: str) -> bool:
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
