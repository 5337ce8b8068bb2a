"""Two simultaneous billing runs queue a mail only once."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection

from billing.mails import mail_once
from gateway.clock import now
from tenants.models import Tenant
from tests.fixtures import a_lock_is_waited_for, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_two_runs_at_once_the_second_waits_and_queues_nothing(tenant: Tenant) -> None:
    queued: list[str] = []
    of_second: list[bool] = []
    at = now()

    def second() -> None:
        try:
            later = at + timedelta(seconds=1)
            of_second.append(mail_once(tenant.id, "x", "1", later, lambda: queued.append("second")))
        finally:
            connection.close()

    thread = threading.Thread(target=second)

    def queue() -> None:
        thread.start()
        wait_until(a_lock_is_waited_for, "the second run does not wait for the first")
        queued.append("first")

    assert mail_once(tenant.id, "x", "1", at, queue)
    thread.join(30)
    assert (of_second, queued) == ([False], ["first"])


def test_another_key_kind_and_tenant_have_mails_of_their_own(tenant: Tenant, other_tenant: Tenant) -> None:
    queued: list[int] = []
    for place, (owner, kind, key) in enumerate(
        [(tenant, "x", "1"), (tenant, "x", "2"), (tenant, "y", "1"), (other_tenant, "x", "1")]
    ):
        for _ in range(2):
            mail_once(owner.id, kind, key, now(), partial(queued.append, place))
    assert queued == [0, 1, 2, 3]
