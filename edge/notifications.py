"""The edge's door to `/upstream/webhook`: the rules of Django's door, and a fast lane for nearly every notification.

The rest (side effects, several tenants, large, malformed, unroutable) takes Django's flow in threads of its own.
"""

from edge.blocking import ThreadPool
from edge.request import Request
from gateway.api.reply import Reply
from messaging.notifications import app_secrets, incoming
from messaging.notifications.intake import Intake

_threads = ThreadPool("notifications", threads=4, waiting=1_000)
_intake = Intake()
_TEXT = {"Content-Type": "text/plain"}


async def close() -> None:
    """Give back what the routes hold of the database."""
    await _intake.close()
    _threads.close()


async def subscribe(request: Request) -> Reply:
    """GET: the verification of a subscription (upstream fact 3.1)."""
    return Reply(200, _TEXT, app_secrets.challenge(request.parameters).encode())


async def accept(request: Request) -> Reply:
    """POST: a notification. 200 after the commit, 401 for a wrong signature."""
    body = await request.body(limit=incoming.MAX_BODY_BYTES)
    environments = app_secrets.signing_environments(body, request.header(b"x-hub-signature-256"))
    if not await _intake.accept(body, environments=environments):
        await _threads.run(incoming.accept, body, environments=environments)
    return Reply(200, _TEXT, b"")
