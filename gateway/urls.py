"""All URLs of the service: the API under /v1, Meta's webhook, docs, admin."""

from collections.abc import Callable, Iterator
from importlib import import_module

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, include, path
from django.utils.module_loading import autodiscover_modules
from django.views import defaults
from django.views.decorators.gzip import gzip_page
from django.views.generic import RedirectView

from gateway.api import errors, unknown_paths
from gateway.api.health_views import HealthView, LiveView, ReadyView
from gateway.api.meta_error_page import meta_error_page
from gateway.api.middleware import API_PATHS
from gateway.api.openapi.document import DocumentView, YamlDocumentView
from gateway.guides import well_known
from gateway.monitoring.metrics import metrics_page

# Only a process that serves pages needs the staff pages, so the import is here.
autodiscover_modules("admin", register_to=admin.site)

_API = (
    path("health", HealthView.as_view(), name="health"),
    path("health/live", LiveView.as_view(), name="health-live"),
    path("health/ready", ReadyView.as_view(), name="health-ready"),
    path("openapi.json", gzip_page(DocumentView.as_view()), name="schema"),
    path("openapi.yaml", gzip_page(YamlDocumentView.as_view()), name="schema-yaml"),
)


def _of_apps(*names: str) -> Iterator[URLPattern]:
    for name in names:
        yield from import_module(f"{name}.urls").urlpatterns


_BILLING = ["billing"] if apps.is_installed("billing") else []
"""The URLs of billing, if the deployment has it."""

# Django tries these in order, so the busiest come first.
urlpatterns = [
    path(
        "v1/",
        include(
            [
                *_API,
                *_of_apps(
                    "messaging", "webhooks", "gateway.request_log", "phone_numbers", "tenants", *_BILLING
                ),
            ]
        ),
    ),
    # Before the Cloud API's paths, which begin with any id.
    path("", include("tenants.connected_apps.urls")),
    path("", include("messaging.cloud_api.urls")),
    path("", include("messaging.agents.urls")),
    # WhiteNoise serves /docs/ and /packages/ (gateway/guides/documentation.py).
    path("docs", RedirectView.as_view(url="/docs/"), name="docs"),
    path("llms.txt", RedirectView.as_view(url="/docs/llms.txt")),
    path("llms-full.txt", RedirectView.as_view(url="/docs/llms-full.txt")),
    path("packages", RedirectView.as_view(url="/packages/"), name="packages"),
    path("packages/simple/<slug:name>/", well_known.package_index, name="package_index"),
    path("robots.txt", well_known.robots, name="robots"),
    path("sitemap.xml", well_known.sitemap, name="sitemap"),
    path(".well-known/security.txt", well_known.security, name="security_txt"),
    path("errors", RedirectView.as_view(url="/docs/errors/"), name="error_page"),
    path("errors/<str:name>", meta_error_page, name="meta_error_page"),
    path("metrics", metrics_page, name="metrics"),
    path("admin/", admin.site.urls),
    *(path("", include(f"{app}.pay_page.urls")) for app in _BILLING),
    path("", include("phone_numbers.hosted_connect.urls")),
    path("", include("console.urls")),
]

Handler = Callable[..., HttpResponse]


def _json_or_page(json_handler: Handler, page_handler: Handler) -> Handler:
    def handler(request: HttpRequest, exception: BaseException | None = None) -> HttpResponse:
        if request.path.startswith(API_PATHS) or not _from_browser(request):
            return json_handler(request, exception)
        return page_handler(request, exception) if exception else page_handler(request)

    return handler


def _from_browser(request: HttpRequest) -> bool:
    return "text/html" in request.headers.get("Accept", "")


handler400 = _json_or_page(errors.bad_request, defaults.bad_request)
handler404 = _json_or_page(unknown_paths.answer, defaults.page_not_found)


def handler500(request: HttpRequest) -> HttpResponse:
    """The response to a crash: JSON for the API, Django's page elsewhere. If the database is unavailable, the JSON says
    so.
    """
    import sys

    if request.path.startswith(API_PATHS):
        return errors.server_error(request, sys.exc_info()[1])
    return defaults.server_error(request)
