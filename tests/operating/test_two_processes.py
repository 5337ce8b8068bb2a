"""Suspension, approval and revocation reach every web process at once, and within 10 seconds without Valkey.

Two real web processes share the tests' database and a Valkey. A change in one process takes effect in the other while
Valkey runs, after Valkey is flushed, and while Valkey is stopped.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tenants.credentials import api_keys, bearer_tokens
from tenants.models import Tenant, User
from tests.faults.service import Service, Valkey, database_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e]

SECONDS = 10.0
AT_ONCE_SECONDS = 1.5
"""The limit with Valkey. It is less than the time for which a process caches a key."""


class TwoWebs:
    """Two web processes and their Valkey."""

    def __init__(self, service: Service, valkey: Valkey) -> None:
        self.valkey = valkey
        self._webs = service.webs(2)

    def ask(self, process: int, method: str, path: str, token: str, body: object = None) -> int:
        """Call one of the processes. Returns the status of the response."""
        answer = requests.request(
            method,
            self._webs[process].url + path,
            headers={"Authorization": f"Bearer {token}"},
            json=body,
            timeout=15,
        )
        return answer.status_code


@pytest.fixture
def webs(tmp_path: Path) -> Iterator[TwoWebs]:
    valkey = Valkey(tmp_path)
    service = Service(tmp_path, DATABASE_URL=database_url(), REDIS_URL=valkey.url)
    try:
        yield TwoWebs(service, valkey)
    finally:
        service.close()
        valkey.close()


def test_changes_in_one_process_reach_the_other(webs: TwoWebs) -> None:
    staff = bearer_tokens.open_session(User.objects.create_superuser("staff@service.example", "pw")).token
    assert_effect_in_both(webs, staff, within=AT_ONCE_SECONDS)
    assert_effect_in_both(webs, staff, within=SECONDS, loses=webs.valkey.flush)
    webs.valkey.stop()
    assert_effect_in_both(webs, staff, within=SECONDS)


def assert_effect_in_both(
    webs: TwoWebs, staff: str, *, within: float, loses: Callable[[], None] = lambda: None
) -> None:
    """Check that changes in one process take effect in both in time. `loses` runs right after the changes."""
    active = Tenant.objects.create(name="Will be suspended", status=Tenant.Status.ACTIVE)
    waiting = Tenant.objects.create(name="Will be approved")
    other = Tenant.objects.create(name="Loses a key", status=Tenant.Status.ACTIVE)
    suspended_key, approved_key, revoked_key = (
        api_keys.create(name="server", environment="live", tenant=tenant)
        for tenant in (active, waiting, other)
    )

    def statuses(process: int) -> list[int]:
        tokens = [key.key for key in (suspended_key, approved_key, revoked_key)]
        return [webs.ask(process, "GET", "/v1/api-keys", token) for token in tokens]

    assert statuses(0) == statuses(1) == [200, 403, 200]
    changed = [
        webs.ask(0, "POST", f"/v1/admin/tenants/{active.id}/suspend", staff, {"reason": "abuse"}),
        webs.ask(0, "POST", f"/v1/admin/tenants/{waiting.id}/approve", staff),
        webs.ask(0, "DELETE", f"/v1/api-keys/{revoked_key.row.id}", revoked_key.key),
    ]
    assert changed == [200, 200, 200]
    loses()
    deadline = time.monotonic() + within
    while [statuses(0), statuses(1)] != [[403, 200, 401]] * 2:
        assert time.monotonic() < deadline, (statuses(0), statuses(1))
        time.sleep(0.2)
