"""Webhook routes of the payment providers. Plain Django, because the raw bytes are signed."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from billing.payments import notices
from billing.payments.provider import PROVIDERS
from gateway.api.errors import MethodNotAllowed, NotFound, answering_errors
from gateway.api.limits import API_BODY_BYTES, limited_by


@limited_by(API_BODY_BYTES)
@csrf_exempt
@answering_errors
def receive(request: HttpRequest, provider: str) -> HttpResponse:
    """POST stores a notice and answers 200 after the commit; 401 for a wrong signature."""
    if provider not in PROVIDERS:
        raise NotFound
    if request.method != "POST":
        raise MethodNotAllowed
    notices.accept(name=provider, body=request.body, headers=request.headers)
    return HttpResponse(b"", content_type="text/plain")
