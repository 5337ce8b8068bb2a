"""Hostile connections to the proxy and to a web process. However much one address occupies, other addresses are
answered.

The benchmark `hostile` measures the response times. The short form opens fewer connections.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from django.conf import settings

from benchmarks.equipment import stranger
from messaging.tests.conftest import connected_number
from messaging.tests.incoming import notification, signature_of, text_change
from tenants.credentials import api_keys
from tenants.models import Tenant
from tests.certificates import self_signed
from tests.faults.service import LONG, Service, database_url, wait_until
from tests.free_ports import free_port
from tests.operating.proxy import Proxy
from tests.simulated import RunningSimulator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]

ROUNDS = 40 if LONG else 2
SLOWEST_SECONDS = 5.0
"""The limit of a call. It is far above the benchmark's limit, because tests run on busy machines."""
HELD = {
    "idle sockets": {"idle": 5_000 if LONG else 500},
    "headers that drip": {"headers": 2_100 if LONG else 60},
    "bodies that drip": {"bodies": 2_000 if LONG else 60, "forms": 500 if LONG else 50},
    "answers that nobody takes": {"readers": 300 if LONG else 50},
    "unknown keys and signatures": {"keys": 300 if LONG else 30, "unsigned": 100 if LONG else 20},
}


class Known:
    """A tenant whose address differs from the stranger's. Each call uses a new connection."""

    def __init__(self, url: str, simulator: RunningSimulator, certificate: Path) -> None:
        self._url, self._certificate = url, str(certificate)
        tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
        self._number = connected_number(tenant, simulator.account())
        self._key = api_keys.create(name="server", environment="live", tenant=tenant).key
        self._count = 0

    def calls(self) -> dict[str, tuple[int, float]]:
        """Call health, send a notification and a message. Returns the status and seconds of each."""
        self._count += 1
        body = notification(
            (
                self._number.account.waba_id,
                [text_change(self._number.phone_number_id, f"wamid.{self._count}")],
            )
        )
        signed = {
            "Content-Type": "application/json",
            "X-Hub-Signature-256": signature_of(body, settings.META_APP_SECRET),
        }
        message = {
            "from": self._number.phone_number_id,
            "to": f"+9197{self._count:08d}",
            "type": "text",
            "text": {"body": "Hello"},
        }
        authorized = {"Authorization": f"Bearer {self._key}"}
        return {
            "health": self._call("GET", "/v1/health"),
            "a notification": self._call("POST", "/upstream/webhook", data=body, headers=signed),
            "a send": self._call("POST", "/v1/messages", json=message, headers=authorized),
        }

    def _call(self, method: str, path: str, **request: object) -> tuple[int, float]:
        answer = requests.request(  # type: ignore[arg-type]
            method, self._url + path, timeout=30, verify=self._certificate, **request
        )
        return answer.status_code, answer.elapsed.total_seconds()


@pytest.fixture
def service(tmp_path: Path, simulator: RunningSimulator) -> Iterator[Service]:
    service = Service(
        tmp_path,
        DATABASE_URL=database_url(),
        META_GRAPH_URL=simulator.url,
        API_RATE_BURST="10000",
    )
    # Without this setting, the digits of some customers' numbers make the simulator fail a send.
    simulator.control("PUT", "settings", {"recipients": {"magic": False}})
    yield service
    simulator.control("PUT", "settings", {"recipients": {"magic": True}})
    service.close()


@pytest.mark.parametrize("through", ["the proxy", "no proxy"])
def test_what_a_stranger_holds_keeps_nobody_waiting(
    service: Service, simulator: RunningSimulator, tmp_path: Path, through: str
) -> None:
    certificate = self_signed(tmp_path)
    with contextlib.ExitStack() as stack:
        if through == "the proxy":
            service.environment |= {"TRUSTED_PROXY_COUNT": "1", "TRUST_PROXY_HEADERS": "true"}
            web = service.web()
            proxy = Proxy(tmp_path / "nginx", certificate, port=free_port(), gateway=web.port)
            stack.callback(proxy.close)
            url = proxy.url
        else:
            service.environment["TRUSTED_PROXY_COUNT"] = "0"
            url = service.web().url
        known = Known(url, simulator, certificate)
        wait_until(lambda: is_answered(known), "the proxy answers")
        for kind, held in HELD.items():
            assert_answers_beside(kind, held, service, url, known)
    service.assert_well()


def assert_answers_beside(kind: str, held: dict[str, int], service: Service, url: str, known: Known) -> None:
    """Check that each call of the known tenant is answered in time while a stranger holds these connections."""
    strangers = service.logs().count(stranger.READY)
    process = service.start(
        "benchmarks.equipment.stranger", url, *(f"{name}={count}" for name, count in held.items())
    )
    wait_until(lambda: service.logs().count(stranger.READY) > strangers, f"the stranger holds {kind}")
    took = []
    for _ in range(ROUNDS):
        calls = known.calls()
        assert {name: status for name, (status, _) in calls.items()} == dict.fromkeys(calls, 200), kind
        took += [seconds for _, seconds in calls.values()]
    assert max(took) < SLOWEST_SECONDS, kind
    assert process.poll() is None, kind
    process.kill()
    # It runs, and so ends, only on a CPU that nothing else needs.
    process.wait(60)
    service.processes.remove(process)


def is_answered(known: Known) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return all(status == 200 for status, _ in known.calls().values())
    return False
