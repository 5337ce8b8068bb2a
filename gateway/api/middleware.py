"""Django's outermost middleware: request id, timing and version on every response, including 404s, 405s and crashes."""

import re
from collections.abc import Callable
from typing import Any

from csp.middleware import CSPMiddleware
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware

from gateway.api import access_log, authentication, limits
from gateway.api.access_log import Answering, check_version
from gateway.api.authentication import Caller
from gateway.api.errors import InvalidRequest, NotFound, PayloadTooLarge, ServiceError, error_response
from gateway.monitoring import tracing

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def service_response(get_response: GetResponse) -> GetResponse:
    """Give each request an id and each response the service's headers."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        answering = Answering(str(request.method), request.path)
        request.request_id = answering.request_id  # type: ignore[attr-defined]
        with tracing.serving(answering.method, request.path, request.headers.get(tracing.HEADER)) as span:
            try:
                _refuse_early(request)
                response = get_response(request)
            except ServiceError as error:
                response = error_response(error, request)
                response["Content-Length"] = str(len(response.content))
            # Reading `request.user` here would look the user up even when the view did not.
            user = getattr(request, "user", None)
            caller = user if type(user) is Caller else None
            if caller is not None:
                limits.count_whole_body(caller, request)
            status, route = response.status_code, _route_of(request)
            answering.note_span(span, caller=caller, status=status, route=route)
        headers = answering.finish(
            status=status, route=route, caller=caller, body=getattr(response, "content", b"")
        )
        for name, value in (*headers.items(), *getattr(request, "rate_limit_headers", {}).items()):
            response[name] = value
        return response

    # Django calls this when it has found the view, before other middleware reads the body.
    middleware.process_view = _bound_body  # type: ignore[attr-defined]
    return middleware


def _route_of(request: HttpRequest) -> str | None:
    """The pattern of the request's path. None for a path without a route. A view whose URL is a regular expression sets
    the pattern itself.
    """
    match = request.resolver_match
    own: str | None = getattr(request, "route_template", None)
    return own or (access_log.template_of(match.route) if match else None)


def _bound_body(request: HttpRequest, view: Callable[..., Any], *_: Any) -> HttpResponseBase | None:
    try:
        limits.bound(request, view)
    except PayloadTooLarge as error:
        if not limits.refuses_large_bodies(view):
            return error_response(error, request)
        request.too_large = error  # type: ignore[attr-defined]
    return None


def _refuse_early(request: HttpRequest) -> None:
    """Reject a U+0000 or an unknown API version before a view is found. Texts in the database cannot hold U+0000."""
    if "\0" in request.path:
        raise NotFound
    if "%00" in request.META.get("QUERY_STRING", ""):
        named = [name for name, values in request.GET.lists() if any("\0" in value for value in values)]
        raise InvalidRequest(
            details={"fields": {name: ["Must not contain the character U+0000."] for name in named}}
        )
    if request.path.startswith(API_PATHS):
        check_version(request.headers.get("X-Service-Version"))


API_PATHS = ("/v1/", "/upstream/", "/internal/", "/mcp", "/oauth/")
"""Paths whose errors are JSON. All others are pages."""
GRAPH_PATH = re.compile(r"/(?:v\d{1,3}\.\d|\d{5}|upload:)")
"""Matches paths of the Cloud API front. No page has such a path."""


# --- Django's middleware of pages. API calls skip it, because they have no cookie, session or message.
#
# The content security policy is an exception: it covers every HTML response. Django calls a middleware's
# `process_view` directly, so it also runs for API calls.


class _PagesOnly:
    get_response: Any

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not _is_page(request):
            response: HttpResponseBase = self.get_response(request)
        else:
            response = super().__call__(request)  # type: ignore[misc]
        return response


def _is_page(request: HttpRequest) -> bool:
    path = request.path_info
    return not (path.startswith(API_PATHS) or GRAPH_PATH.match(path))


ANY_HOST = ("/metrics",)
"""Paths that scrapers call by IP address. They build no URL from Host."""


class Common(CommonMiddleware):
    """Checks the Host header, except on the paths of `ANY_HOST`."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        return None if request.path_info.startswith(ANY_HOST) else super().process_request(request)


class Sessions(_PagesOnly, SessionMiddleware):
    """Sessions of the hosted pages and the admin. A session's cookie is a known credential while the session's user is
    logged in.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        answered = super().process_response(request, response)
        if request.session.accessed:
            _record_verified(request)
        return answered


def _record_verified(request: HttpRequest) -> None:
    """Mark the session as known if this request found or logged in its user. Drop a cookie without a valid session."""
    session, cookie = request.session, request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    person = getattr(request, "_cached_user", None)  # only set when the view asked for the user
    is_new = session.session_key is not None and session.session_key != cookie
    if SESSION_KEY in session and (is_new or (person is not None and person.is_authenticated)):
        # A new session has just logged its user in, so that reading the user makes no query.
        authentication.remember_credential(
            authentication.credential_digest(str(session.session_key)), owner=_owner_of(request.user)
        )
    elif cookie is not None and (SESSION_KEY not in session or person is not None):
        authentication.drop_credential(authentication.credential_digest(cookie))


def _owner_of(user: Any) -> str:
    """The tenant of a person, whose members share their turns for pages. Staff without a tenant each have their own."""
    return str(getattr(user, "tenant_id", None) or f"user:{user.pk}")


class Authentication(_PagesOnly, AuthenticationMiddleware):
    """Adds the logged-in user to the request."""


class Messages(_PagesOnly, MessageMiddleware):
    """Messages that the next page shows once."""


class ContentSecurityPolicy(CSPMiddleware):
    """Adds the policy of what a page may load to every HTML response."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_html = response.get("Content-Type", "").lower().startswith("text/html")
        if is_html or _is_page(request):
            answered: HttpResponseBase = super().process_response(request, response)
            return answered
        return response
