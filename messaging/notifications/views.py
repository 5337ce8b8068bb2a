"""`/upstream/webhook`: what the upstream calls. Plain Django: the raw bytes are signed, so nothing parses before."""

import hmac

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from gateway.api import bodies
from gateway.api.errors import (
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    PayloadTooLarge,
    Unauthorized,
    answering_errors,
)
from gateway.upstream.notifications import signature
from messaging.notifications import incoming


@csrf_exempt
@answering_errors
def webhook(request: HttpRequest) -> HttpResponse:
    """GET answers the verification; POST takes a notification: 200 after the commit, 401 for a wrong signature."""
    if request.method == "GET":
        return _challenge(request)
    if request.method != "POST":
        raise MethodNotAllowed
    body = request.body
    if len(body) > bodies.limit_for(request.path):
        raise PayloadTooLarge
    header = request.headers.get("X-Hub-Signature-256")
    secrets = {"live": settings.META_APP_SECRET, "test": settings.SANDBOX_APP_SECRET}
    environments = [
        environment for environment, secret in secrets.items() if signature.verify(body, header, secret)
    ]
    if not environments:
        raise Unauthorized("The signature does not match the body.")
    incoming.accept(body, environments=environments)
    return HttpResponse(b"", content_type="text/plain")


def _challenge(request: HttpRequest) -> HttpResponse:
    """Upstream fact 3.1: the challenge as plain text for the right token, else 403."""
    token = request.GET.get("hub.verify_token", "")
    if request.GET.get("hub.mode") != "subscribe":
        raise InvalidRequest.of(**{"hub.mode": "Must be subscribe."})
    if not hmac.compare_digest(token.encode(), settings.META_WEBHOOK_VERIFY_TOKEN.encode()):
        raise Forbidden("The verify token does not match.")
    return HttpResponse(request.GET.get("hub.challenge", ""), content_type="text/plain")
