"""The console's part of the event stream: tells an open page that something happened, for the session's own tenant.

A web process gives a thread to each call, so an answer says what is new and ends; the browser asks again after two
seconds with the place where it was (decision "Live pages"). It carries no content: the page asks for its parts anew.
"""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from gateway.api.errors import InvalidRequest
from gateway.database.statements import run
from gateway.roles import Area
from tenants.console.frame import TEST, Visit, console_page
from webhooks.stream import reading, sse
from webhooks.stream.positions import present
from webhooks.stream.reading import Wanted
from webhooks.stream.stream_query import place_of

RETRY_MILLISECONDS = 2_000


@require_safe
@console_page(Area.INTEGRATION)
def live(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Whether any event of the environment came after `Last-Event-ID`; without it, the place to begin at.

    `environment=test` follows the test world, whatever environment the person looks at: the test phone is always there.
    """
    tenant_id = visit.tenant.id
    environment = TEST if request.GET.get("environment") == TEST else visit.environment
    here = run(present())
    try:
        last = request.headers.get("Last-Event-ID")
        seen = run(place_of(last, tenant_id=tenant_id, environment=environment))
    except InvalidRequest:
        seen = here
    has_news = bool(run(reading.with_news([Wanted(tenant_id, environment, after=seen)])))
    news = b"event: news\ndata: 1\n" if has_news else b": nothing\n"
    body = b"retry: %d\nid: %b\n%b\n" % (RETRY_MILLISECONDS, str(here).encode(), news)
    return HttpResponse(body, headers=sse.HEADERS)
