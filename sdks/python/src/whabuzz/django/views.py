"""The view for the endpoint. It verifies deliveries, answers the ping, and passes each event to the handlers once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from whabuzz.django.models import SeenEvent
from whabuzz.django.signals import event_received
from whabuzz.errors import InvalidSignature
from whabuzz.webhooks import WebhookVerifier

MOST_BYTES = 40 * 1024 * 1024
"""The largest delivery: it has WhatsApp's whole notification, and the event in it again. Django's own limit for
`request.body` is 2.5 MB, and a notification can have 3 MB.
"""


def secrets() -> list[str]:
    """The secrets in `WHABUZZ_WEBHOOK_SECRET`: the endpoint's secret, or several during a rotation."""
    given = getattr(settings, "WHABUZZ_WEBHOOK_SECRET", None)
    if not given:
        raise ImproperlyConfigured("WHABUZZ_WEBHOOK_SECRET must hold the endpoint's secret, whsec_….")
    return [given] if isinstance(given, str) else list(given)


def _webhook(request: HttpRequest) -> HttpResponse:
    """Receive a delivery. Answers 200 once its events are handled, 401 when the signature is not valid."""
    body = request.read(MOST_BYTES + 1)
    if len(body) > MOST_BYTES:
        return HttpResponse("The body is too large.", status=413, content_type="text/plain")
    try:
        received: list[Any] = WebhookVerifier(secrets()).verify_all(body, request.headers)
    except InvalidSignature as error:
        return HttpResponse(str(error), status=401, content_type="text/plain")
    if received[0]["type"] == "webhook.verify":
        return HttpResponse(received[0]["challenge"], content_type="text/plain")
    for event in received:
        _handle(event)
    return HttpResponse("ok", content_type="text/plain")


def _handle(event: Any) -> None:
    """Pass an event to the handlers, unless it was handled before."""
    with transaction.atomic():
        try:
            # If two deliveries of an event arrive at once, the second waits here until the first is handled.
            with transaction.atomic():
                SeenEvent.objects.create(dedupe_key=event["dedupe_key"])
        except IntegrityError:
            return
        event_received.send(sender=None, event=event)


webhook: Callable[..., Any] = csrf_exempt(require_POST(_webhook))
