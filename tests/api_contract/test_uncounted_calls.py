"""The check of `uncounted_calls.py` finds a request that waits for a network outside of a bulkhead, and one that never
counts a call out.
"""

from uuid import uuid4

import pytest
from django.core.signals import request_finished, request_started

from gateway.api import limits
from gateway.database.transactions import leave_database
from tests.api_contract.uncounted_calls import UncountedCall
from tests.watched import found

pytestmark = pytest.mark.django_db


def test_a_request_that_waits_uncounted_is_found() -> None:
    leave_database()
    request_started.send(None, environ={"PATH_INFO": "/v1/anything"})
    try:
        with pytest.raises(UncountedCall, match="/v1/anything"):
            leave_database()
        with limits.upstream.held(uuid4()):
            leave_database()
        with pytest.raises(UncountedCall):
            leave_database()
    finally:
        request_finished.send(None)
    leave_database()


def test_a_request_that_keeps_a_call_counted_is_found() -> None:
    request_started.send(None, environ={"PATH_INFO": "/v1/anything"})
    counted = limits.upstream.enter(uuid4())
    request_finished.send(None)
    limits.upstream.leave(counted)
    assert found == ["/v1/anything never counts a call out of its bulkhead"]
    found.clear()
