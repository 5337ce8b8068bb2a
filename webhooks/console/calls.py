"""Calls of a customer's endpoint from the console: pings, example events, single deliveries.

Each holds a place of the bulkhead. A ping goes to whatever URL was typed in, so an account that nobody approved yet may
make only a few: it cannot aim the gateway at other people's servers.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from allauth.core import ratelimit
from django.http import HttpRequest

from gateway.api.errors import RateLimited
from gateway.api.limits import in_flight
from tenants.console.frame import Visit

ACTION = "call_while_waiting"
"""The limit in `ACCOUNT_RATE_LIMITS`."""


@contextmanager
def endpoint_called(request: HttpRequest, visit: Visit) -> Iterator[None]:
    """Count a call in for the time of the block. Raises TooManyInFlight, or RateLimited while the account waits."""
    if visit.waits and not ratelimit.consume(request, action=ACTION, key=str(visit.tenant.id)):
        raise RateLimited(
            "Your account waits for approval and has called its endpoints often. Try again later."
        )
    with in_flight.endpoints.held(visit.tenant.id):
        yield
