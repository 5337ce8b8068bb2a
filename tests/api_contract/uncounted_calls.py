"""Fails a test if one of its requests waits for a network outside of a bulkhead, where no limit counts the call, or if
it never counts a call out.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from uuid import UUID

import pytest
from django.core.signals import request_finished, request_started

from gateway.api.limits import Bulkhead, Counted
from gateway.database import transactions
from tests.watched import found

EXEMPT_CALLERS = {"tenants.mail", "webhooks.events.publish"}
"""Modules that do not wait for a network. In a request, mail is only printed to a developer's console. Publishing waits
for the database."""
EXEMPT_PATHS = ("/admin/",)
"""Only staff use these paths. Staff are few, and the service knows each of them."""


class UncountedCall(AssertionError):
    """A view called Meta, an endpoint or the payment provider outside of a bulkhead (`gateway.api.limits`)."""


@contextmanager
def refused() -> Iterator[None]:
    """Raise UncountedCall when a test's request is about to wait for a network outside of a bulkhead. Report a request
    that ends while it still counts a call.
    """
    here = threading.local()
    assert_no_transaction = transactions.assert_no_transaction
    enter, leave = Bulkhead.enter, Bulkhead.leave

    def begin(environ: dict[str, Any] | None = None, **_: Any) -> None:
        here.path, here.counted = (environ or {}).get("PATH_INFO"), 0

    def end(**_: Any) -> None:
        if getattr(here, "path", None) is not None and here.counted > 0:
            found.append(f"{here.path} never counts a call out of its bulkhead")
        here.path = None

    @wraps(enter)
    def counted_enter(self: Bulkhead, tenant_id: UUID, number: str | None = None) -> Counted:
        counted = enter(self, tenant_id, number)
        here.counted = getattr(here, "counted", 0) + 1
        return counted

    @wraps(leave)
    def counted_leave(self: Bulkhead, counted: Counted) -> None:
        leave(self, counted)
        here.counted = getattr(here, "counted", 0) - 1

    def assert_counted() -> None:
        assert_no_transaction()
        path = getattr(here, "path", None)
        if path is None or here.counted > 0 or path.startswith(EXEMPT_PATHS):
            return
        caller = sys._getframe(2).f_globals["__name__"]
        if caller not in EXEMPT_CALLERS:
            raise UncountedCall(f"{path} waits for a network in {caller}: count it (gateway.api.limits)")

    request_started.connect(begin)
    request_finished.connect(end)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transactions, "assert_no_transaction", assert_counted)
            patch.setattr(Bulkhead, "enter", counted_enter)
            patch.setattr(Bulkhead, "leave", counted_leave)
            yield
    finally:
        request_started.disconnect(begin)
        request_finished.disconnect(end)
