"""The resolver of `/v1`: every route is found by its path, as if Django tried all of them."""

import re

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, URLPattern, get_resolver, path, resolve

from gateway.api.dispatch import SegmentResolver


def routes() -> list[str]:
    (api,) = [each for each in get_resolver().url_patterns if isinstance(each, SegmentResolver)]
    return [f"{api.pattern}{each.pattern}" for each in api.url_patterns]


@pytest.mark.parametrize("route", routes())
def test_each_route_is_found(route: str) -> None:
    named = re.sub(r"<id:\w+>", "00000000-0000-7000-8000-000000000000", route)
    assert resolve("/" + re.sub(r"<\w+:\w+>", "some-id", named)).route == route


@pytest.mark.parametrize(
    "unknown", ["/v1/", "/v1/nothing", "/v1/number", "/v1/numbers/", "/v1//numbers", "/v1/events/1/2"]
)
def test_what_no_route_has_is_not_found(unknown: str) -> None:
    with pytest.raises(Resolver404):
        resolve(unknown)


def test_a_route_must_begin_with_a_word() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        raise NotImplementedError

    pattern: URLPattern = path("<str:anything>/more", view)
    with pytest.raises(ImproperlyConfigured):
        SegmentResolver("v1/", [pattern])
