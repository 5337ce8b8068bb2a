"""Runtimes of the sending flow: the flow is written once, asynchronously, and runs in both kinds of web process.

`BlockingRuntime` is that of Django's threads: nothing in it ever waits for an event loop, so `run_blocking` drives the
flow from its begin to its end. `loop_runtime.py` holds that of the edge.
"""

import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.db import connection, transaction

from gateway.database.statements import Statements, run
from gateway.upstream.blocking_pool import blocking_pool
from gateway.upstream.calls import GraphAnswer, GraphCall
from phone_numbers.lookup import Sender, SenderQuery, sender
from webhooks.events.new_event import NewEvent
from webhooks.events.publish import publish

Result = TypeVar("Result")


class Runtime(Protocol):
    """What the flow asks of the process that it runs in."""

    async def find_sender(self, query: SenderQuery) -> Sender | None:
        """The number that a send names. Raises `DATABASE_UNAVAILABLE`."""

    async def read(self, statements: Statements[Result]) -> Result:
        """Run statements, each of which may stand alone. Raises `DATABASE_UNAVAILABLE`."""

    async def write(self, statements: Statements[Result]) -> Result:
        """Run statements in one transaction, committed when this returns. Raises `DATABASE_UNAVAILABLE`."""

    async def publish(self, tenant_id: UUID, event: NewEvent) -> None:
        """Write one event, committed when this returns, in one statement with what others publish meanwhile."""

    async def call(self, call: GraphCall) -> GraphAnswer:
        """Call the upstream once. Raises UpstreamUnreachable."""

    async def aside(self, work: Callable[[], None]) -> None:
        """Do work of Django's ORM."""

    async def sleep(self, seconds: float) -> None:
        """Wait, and let others work."""


class BlockingRuntime:
    """A thread of a Django process: its connection, group commit with its other threads, the blocking pool."""

    async def find_sender(self, query: SenderQuery) -> Sender | None:
        return sender(tenant_id=query.tenant_id, environment=query.environment, from_=query.from_)

    async def read(self, statements: Statements[Result]) -> Result:
        return run(statements, prepared=True)

    async def write(self, statements: Statements[Result]) -> Result:
        try:
            with transaction.atomic():
                return run(statements)
        except Exception:
            # A connection that failed is not asked again: the next attempt opens another.
            if not connection.in_atomic_block:
                connection.close()
            raise

    async def publish(self, tenant_id: UUID, event: NewEvent) -> None:
        publish(tenant_id=tenant_id, events=[event], alone=True)

    async def call(self, call: GraphCall) -> GraphAnswer:
        return blocking_pool().send(call)

    async def aside(self, work: Callable[[], None]) -> None:
        work()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this runtime has a thread to itself


def run_blocking(flow: Coroutine[Any, Any, Result]) -> Result:
    """The result of a flow whose runtime never waits for an event loop."""
    try:
        flow.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    flow.close()
    raise RuntimeError("A flow in a thread waited for an event loop.")
