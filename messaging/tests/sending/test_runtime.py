"""The connections of the sending flow's event loop survive statements that fail."""

import pytest
from django.db import ProgrammingError

from gateway.database.statements import Statements
from messaging.sending import flow
from messaging.sending.flow import SendRuntime

pytestmark = pytest.mark.django_db(transaction=True)


def asking(statement: str) -> Statements[int]:
    ((answer,),) = yield statement, []
    return int(answer)


async def test_statements_that_fail_keep_no_connection() -> None:
    runtime = SendRuntime(calls_at_once=1)
    try:
        for _ in range(flow.OWN_CONNECTIONS + 1):
            with pytest.raises(ProgrammingError):
                await runtime.write(asking("SELECT 1 FROM no_such_table"))
        assert await runtime.read(asking("SELECT 1")) == 1
    finally:
        await runtime.close()
