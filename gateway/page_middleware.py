"""Django's middleware of pages. Calls of the API skip it: they carry no cookie, session, message or style sheet.

For every other path each class does what its parent does. `process_view`, which Django calls by itself, is not skipped.
"""

from typing import Any

from csp.middleware import CSPMiddleware
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.http.response import HttpResponseBase
from django.middleware.common import CommonMiddleware

from gateway.api.middleware import API_PATHS, GRAPH_PATH


class _PagesOnly:
    get_response: Any

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        path = request.path_info
        if path.startswith(API_PATHS) or GRAPH_PATH.match(path):
            response: HttpResponseBase = self.get_response(request)
        else:
            response = super().__call__(request)  # type: ignore[misc]
        return response


ANY_HOST = ("/v1/health", "/metrics", "/upstream/")
"""Paths asked for by address: load balancers, kubelets, scrapers, the sandbox. None of them builds a URL from Host."""


class Common(CommonMiddleware):
    """Checks the Host header, everywhere but on the paths of `ANY_HOST`."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        return None if request.path_info.startswith(ANY_HOST) else super().process_request(request)


class Sessions(_PagesOnly, SessionMiddleware):
    """Sessions of the hosted pages and the admin."""


class Authentication(_PagesOnly, AuthenticationMiddleware):
    """The person who is logged in."""


class Messages(_PagesOnly, MessageMiddleware):
    """Messages that the next page shows once."""


class ContentSecurityPolicy(_PagesOnly, CSPMiddleware):
    """The policy that says what a page may load."""
