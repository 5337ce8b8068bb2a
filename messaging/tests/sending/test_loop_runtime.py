"""Runtime of the sending flow on an event loop: its few connections outlive the statements that fail on them."""

import asyncio

import pytest
from django.db import ProgrammingError

from gateway.database.statements import Statements
from messaging.sending import loop_runtime
from messaging.sending.loop_runtime import LoopRuntime

pytestmark = pytest.mark.django_db(transaction=True)


def asking(statement: str) -> Statements[int]:
    ((answer,),) = yield statement, []
    return int(answer)


async def test_statements_that_fail_keep_no_connection() -> None:
    runtime = LoopRuntime(calls_at_once=1, aside=asyncio.to_thread)
    try:
        for _ in range(loop_runtime.OWN_CONNECTIONS + 1):
            with pytest.raises(ProgrammingError):
                await runtime.write(asking("SELECT 1 FROM no_such_table"))
        assert await runtime.read(asking("SELECT 1")) == 1
    finally:
        await runtime.close()
