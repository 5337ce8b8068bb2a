"""SIGKILL during sign-up and connect. No partial row stays, and a repeat of the call, link or form succeeds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection, transaction

from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from tenants.credentials.api_keys import NewKey
from tenants.models import AuditEntry, SignUp, Tenant, User
from tenants.signup import sign_ups
from tests.faults.service import READY_SECONDS, Service, Web, database_url, wait_until
from tests.simulated import RunningSimulator, SimulatedAccount

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

FORM = {
    "email": "owner@infosys.com",
    "password": "correct horse battery staple",
    "phone": "98000 00001",
    "company": "Infosys Limited",
    "website": "www.infosys.com",
    "tax_id": "29AAACI1681G1ZL",
    "address": "44 Electronics City",
    "city": "Bengaluru",
    "pin_code": "560100",
    "state_code": "29",
}


class Site:
    """A web process that is killed during a request and restarts."""

    def __init__(self, web: Web) -> None:
        self.url, self._web = web.url, web

    def kill(self) -> None:
        """Kill the process with SIGKILL, and restart it."""
        self._web.kill()
        self._web.start()

    def session(self) -> requests.Session:
        """A browser with the CSRF cookie of the sign-up form."""
        session = requests.Session()
        self.ask(session, "GET", "/sign-up")
        return session

    def submit(self, session: requests.Session, path: str, form: dict[str, str]) -> requests.Response:
        """Submit a form of a page."""
        form = {**form, "csrfmiddlewaretoken": session.cookies["csrftoken"]}
        return session.post(f"{self.url}{path}", data=form, timeout=30)

    def ask(self, session: requests.Session, method: str, path: str, **values: Any) -> requests.Response:
        """Send a request, and repeat it until the restarted process answers."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                return session.request(method, f"{self.url}{path}", timeout=30, **values)
            except requests.ConnectionError:
                assert time.monotonic() < deadline, "no web process came back"
                time.sleep(0.05)


@pytest.fixture
def site(simulator: RunningSimulator, tmp_path: Path) -> Iterator[Site]:
    """One web process on the tests' database, with the simulator as Meta."""
    service = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        META_GRAPH_URL=simulator.url,
        SANDBOX_GRAPH_URL=simulator.url,
        # Long enough that all calls still wait for Meta when the process is killed.
        UPSTREAM_TIMEOUT_MS="90000",
    )
    yield Site(service.web())
    service.close()


def test_a_connect_that_is_killed_at_any_call_goes_on_with_the_same_call(
    site: Site, key: NewKey, tenant: Tenant, simulator: RunningSimulator
) -> None:
    verified_endpoint(tenant)
    killed_at = [
        ("access_token", "before"),
        ("access_token", "after"),
        ("debug_token", "before"),
        ("subscribed_apps", "before"),
        ("subscribed_apps", "after"),
        ("/register", "before"),
        ("/register", "after"),
    ]
    accounts = _kill_at(site, key, simulator, killed_at)
    # Meta accepted this code, but the kill lost the token in the response.
    lost = accounts.pop(("access_token", "after"))
    for place, account in accounts.items():
        answer = _connect(site, key, account, account.code)
        assert answer.status_code == 200, (place, answer.text)
        assert answer.json()["connection_state"] == "connected", place
    assert set(PhoneNumber.objects.values_list("connection_state", flat=True)) == {"connected"}

    spent = _connect(site, key, lost, lost.code)
    assert spent.status_code == 400
    assert spent.json()["error"]["error_subcode"] == 36009
    assert not BusinessAccount.objects.filter(waba_id=lost.waba_id).exists()
    answer = _connect(site, key, lost, simulator.code(lost.waba_id))
    assert answer.json()["connection_state"] == "connected"


def test_a_sign_up_that_is_killed_leaves_nothing_and_the_same_form_and_link_go_on(site: Site) -> None:
    visitor = site.session()
    _kill_while_locked(site, "tenants_outboundmail", lambda: site.submit(visitor, "/sign-up", FORM))
    assert not SignUp.objects.exists(), "a form whose link was never mailed"
    site.ask(visitor, "GET", "/sign-up")
    assert site.submit(visitor, "/sign-up", FORM).url.endswith("/sign-up/sent")
    link = sign_ups.link_for(SignUp.objects.get()).split("/", 3)[3]

    _kill_while_locked(site, "tenants_auditentry", lambda: site.submit(visitor, f"/{link}", {}))
    assert not Tenant.objects.exists()
    assert not User.objects.exists()
    site.ask(visitor, "GET", f"/{link}")
    assert site.submit(visitor, f"/{link}", {}).status_code == 200
    tenant = Tenant.objects.get()
    assert User.objects.get().tenant == tenant
    assert AuditEntry.objects.get(action="tenant.sign_up").tenant_id == tenant.id


def _connect(site: Site, key: NewKey, account: SimulatedAccount, code: str) -> requests.Response:
    body = {"code": code, "waba_id": account.waba_id, "phone_number_id": account.phone_number_id}
    headers = {"Authorization": f"Bearer {key.key}"}
    return site.ask(requests.Session(), "POST", "/v1/numbers/embedded-signup", json=body, headers=headers)


def _kill_at(
    site: Site, key: NewKey, simulator: RunningSimulator, killed_at: list[tuple[str, str]]
) -> dict[tuple[str, str], SimulatedAccount]:
    """Connect an account for each place, and kill the web process while the calls hang, each at a different place.

    The simulator hangs only the first request at a place, so each call gets one place further.
    """
    simulator.faults(
        *({"action": "hang", "match": {"path": path}, "when": when, "times": 1} for path, when in killed_at)
    )
    accounts = {place: simulator.account([{"registered": False}]) for place in killed_at}
    headers = {"Authorization": f"Bearer {key.key}"}
    with ExitStack() as calls:
        for number, account in enumerate(accounts.values(), start=1):
            body = {
                "code": account.code,
                "waba_id": account.waba_id,
                "phone_number_id": account.phone_number_id,
            }
            call = partial(
                requests.post,
                f"{site.url}/v1/numbers/embedded-signup",
                json=body,
                headers=headers,
                timeout=90,
            )
            calls.enter_context(_broken_off(call))
            wait_until(lambda number=number: _waiting(simulator) == number, "the call came to its place")
        site.kill()
    simulator.faults()
    return accounts


def _waiting(simulator: RunningSimulator) -> int:
    return sum(rule["used"] for rule in simulator.control("GET", "faults")["rules"])


def _kill_while_locked(site: Site, table: str, call: Any) -> None:
    """Make a call whose transaction waits for a locked table, and kill the web process."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {table} IN SHARE MODE")
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"

        def is_waiting() -> bool:
            cursor.execute(waits, [table])
            return cursor.fetchone() is not None

        with _broken_off(call):
            wait_until(is_waiting, "the call came to where it is killed")
            site.kill()


@contextmanager
def _broken_off(call: Callable[[], requests.Response]) -> Iterator[None]:
    """Make a call in a thread. By the end of the block, the connection must break without a response."""
    failed: list[Exception] = []

    def caller() -> None:
        try:
            call()
        except requests.ConnectionError as error:
            failed.append(error)

    thread = threading.Thread(target=caller)
    thread.start()
    yield
    thread.join(20)
    assert failed, "the call was answered"
