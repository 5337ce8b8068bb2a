"""The floors of benchmarks: views with the least work possible, which the real views are compared with."""

import orjson
import requests
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from gateway.api.errors import answering_errors
from gateway.upstream.notifications import signature

_session = requests.Session()
_session.trust_env = False
_session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=256))


@csrf_exempt
@answering_errors
def signed(request: HttpRequest) -> HttpResponse:
    """The floor of a notification: its signature is checked, nothing is kept."""
    right = signature.verify(
        request.body, request.headers.get("X-Hub-Signature-256"), settings.META_APP_SECRET
    )
    return HttpResponse(b"", status=200 if right else 401, content_type="text/plain")


@csrf_exempt
def forwarded(request: HttpRequest) -> HttpResponse:
    """The floor of a send: the body goes to the upstream and its answer back, nothing is checked or kept."""
    body = orjson.loads(request.body)
    number = body.pop("from")
    # The seed numbers businesses, and the benchmark their tokens alike.
    token = f"EAAbench{int(number[-5:])}"
    answer = _session.post(
        f"{settings.META_GRAPH_URL}/{settings.META_GRAPH_VERSION}/{number}/messages",
        data=orjson.dumps({"messaging_product": "whatsapp", **body}),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        timeout=15,
    )
    return HttpResponse(answer.content, status=answer.status_code, content_type="application/json")


def ready(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return HttpResponse(b"ok", content_type="text/plain")


urlpatterns = [path("upstream/webhook", signed), path("v1/messages", forwarded), path("ready", ready)]
