"""Django's door to `/upstream/webhook`. Plain Django: the raw bytes are signed, so nothing parses before."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from gateway.api.errors import MethodNotAllowed, answering_errors
from gateway.api.limits.body_size import large_bodies, limited_by
from messaging.notifications import app_secrets, incoming


@limited_by(incoming.MAX_BODY_BYTES)
@csrf_exempt
@answering_errors
def webhook(request: HttpRequest) -> HttpResponse:
    """GET answers the verification; POST takes a notification: 200 after the commit, 401 for a wrong signature."""
    if request.method == "GET":
        return HttpResponse(app_secrets.challenge(request.GET.dict()), content_type="text/plain")
    if request.method != "POST":
        raise MethodNotAllowed
    # Anybody may send this much, and only the whole body can be judged.
    with large_bodies.held_for(request):
        body = request.body
        environments = app_secrets.signing_environments(body, request.headers.get("X-Hub-Signature-256"))
        incoming.accept(body, environments=environments)
    return HttpResponse(b"", content_type="text/plain")
