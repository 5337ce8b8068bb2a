"""Views that do only what cannot be left out: what the real ones are measured against."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from gateway.api.errors import answering_errors
from gateway.upstream import signature


@csrf_exempt
@answering_errors
def signed(request: HttpRequest) -> HttpResponse:
    """The floor of a notification: its signature is checked, nothing is kept."""
    right = signature.verify(
        request.body, request.headers.get("X-Hub-Signature-256"), settings.META_APP_SECRET
    )
    return HttpResponse(b"", status=200 if right else 401, content_type="text/plain")


def ready(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return HttpResponse(b"ok", content_type="text/plain")


urlpatterns = [path("upstream/webhook", signed), path("ready", ready)]
