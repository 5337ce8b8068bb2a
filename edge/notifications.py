"""The edge's door to `/upstream/webhook`: the same rules and the same flow as Django's."""

from django.conf import settings

from edge.blocking import BlockingPool
from edge.request import Request
from gateway.api.reply import Reply
from messaging.notifications import incoming, verification

_threads = BlockingPool("notifications", threads=4, waiting=1_000)
_TEXT = {"Content-Type": "text/plain"}


async def subscribe(request: Request) -> Reply:
    """GET: the verification of a subscription (upstream fact 3.1)."""
    return Reply(200, _TEXT, verification.challenge(request.parameters).encode())


async def accept(request: Request) -> Reply:
    """POST: a notification. 200 after the commit, 401 for a wrong signature."""
    body = await request.body(limit=settings.MAX_NOTIFICATION_BYTES)
    environments = verification.signing_environments(body, request.header(b"x-hub-signature-256"))
    await _threads.run(incoming.accept, body, environments=environments)
    return Reply(200, _TEXT, b"")
