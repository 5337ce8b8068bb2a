"""Webhook route of the payment provider. Plain Django, because the raw bytes are signed."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from billing.payments import notices
from gateway.api import bodies
from gateway.api.errors import MethodNotAllowed, PayloadTooLarge, answering_errors


@csrf_exempt
@answering_errors
def razorpay(request: HttpRequest) -> HttpResponse:
    """POST stores a notice and answers 200 after the commit; 401 for a wrong signature."""
    if request.method != "POST":
        raise MethodNotAllowed
    body = request.body
    if len(body) > bodies.limit_for(request.path):
        raise PayloadTooLarge
    notices.accept(
        body=body,
        signature=request.headers.get("X-Razorpay-Signature", ""),
        event_id=request.headers.get("X-Razorpay-Event-Id", ""),
    )
    return HttpResponse(b"", content_type="text/plain")
