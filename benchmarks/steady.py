"""Steady rates of 20, 100 and 500 notifications a second, from Meta's POST to the answer of the tenant's endpoint.

The figures are the CPU of all processes, including Postgres and Valkey, on the small host and with split roles. The
floor commits one INSERT for each notification and posts each request with a bare relay, at the same rate
(`equipment/floors.py`).
"""

import http.client
import time
from urllib.parse import urlsplit

import orjson

from benchmarks.equipment import floors, raw_client
from benchmarks.equipment.harness import Harness, Request, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint
from benchmarks.equipment.sink import Sink
from benchmarks.incoming import notification

RATES = {20: 15, 100: 12, 500: 8}
"""The rates in notifications a second, and the seconds of each."""
ONE_BY_ONE = 100
"""Up to this rate, a single connection sends one notification after another, and each is timed."""
BUSINESSES = 10
OF_FLOOR = {20: 5.0, 100: 3.5, 500: 3.5}
"""Limit for the CPU of all processes, as a multiple of the floor's CPU, by rate."""
P50, P99 = 2.0, 6.0
"""Limits for percentiles of the milliseconds from the answer (sent after the commit) to the arrival at the receiver.
"""


def run(harness: Harness) -> list[Result]:
    """Measure every rate with the small host, then with separate web and deliveries processes."""
    results: list[Result] = []
    with Sink() as sink:
        businesses = [business(number) for number in range(1, BUSINESSES + 1)]
        for each in businesses:
            endpoint(each.tenant_id, f"{sink.url}/ok")
        load = _Steady(harness, sink, businesses)
        bare = {rate: floors.paced(harness, sink.url, rate=rate, seconds=8) for rate in RATES}
        harness.small_host()
        load.run("small host", urlsplit(harness.urls["gateway"]).netloc, ("gateway",))
        harness.stop("gateway")
        harness.web()
        harness.worker()
        harness.beat()
        load.run("split", urlsplit(harness.urls["web"]).netloc, ("web", "worker", "beat"))
        arrivals = {event_id: at for _, event_id, at in sink.finish()}
    for result, rate, processes, answered in load.measured:
        floor = bare[rate]
        result.floor_cpu = floor.cpu
        result.expect_cpu(
            (*processes, "postgres", "valkey"), OF_FLOOR[rate], floor=(floors.RELAY, floors.POSTGRES)
        )
        if answered:
            ids = _event_ids(list(answered))
            waits = [(arrivals[ids[wamid]] - at) * 1000 for wamid, at in answered.items()]
            result.percentiles = found = percentiles(waits)
            assert found is not None
            result.target += f", p50 ≤ {P50:.0f} ms, p99 ≤ {P99:.0f} ms"
            result.expect(found["p50"] <= P50, f"p50 {found['p50']:.1f} ms, not {P50:.0f}")
            result.expect(found["p99"] <= P99, f"p99 {found['p99']:.1f} ms, not {P99:.0f}")
        results.append(result)
    return [*results, *bare.values()]


class _Steady:
    """The load. `measured` has each rate's result, the processes, and the time of the answer to each message."""

    def __init__(self, harness: Harness, sink: Sink, businesses: list[Business]) -> None:
        self._harness, self._sink, self._businesses = harness, sink, businesses
        self._sent = 0
        self.measured: list[tuple[Result, int, tuple[str, ...], dict[str, float]]] = []

    def run(self, what: str, address: str, processes: tuple[str, ...]) -> None:
        """Measure every rate, after a warm-up of the processes."""
        self._send(address, rate=100, seconds=4)
        for rate, seconds in RATES.items():
            with self._harness.measure() as measured:
                answered = self._send(address, rate=rate, seconds=seconds)
            count = rate * seconds
            cpu = {name: spent for name, spent in measured.cpu_per(count).items() if name != "client"}
            share = sum(spent for name, spent in measured.cpu.items() if name in cpu) / measured.seconds
            result = Result(
                f"{what} at {rate}/s, {share:.1%} of a core, {sum(cpu.values()):,.0f} µs in all",
                count,
                count / measured.seconds,
                unit="events",
                cpu=cpu,
            )
            self.measured.append((result, rate, processes, answered))

    def _send(self, address: str, *, rate: int, seconds: int) -> dict[str, float]:
        requests = [
            notification(self._businesses[number % BUSINESSES], 1) for number in range(rate * seconds)
        ]
        self._sent += len(requests)
        answered: dict[str, float] = {}
        if rate <= ONE_BY_ONE:
            answered = _one_by_one(address, requests, rate=rate)
        else:
            url = f"http://{address}/upstream/webhook"
            raw_client.post_steadily(url, requests, concurrency=16, rate=rate)
        expected = self._sent
        self._harness.wait_until(lambda: self._sink.count >= expected, "not everything was delivered")
        return answered


def _one_by_one(address: str, requests: list[Request], *, rate: int) -> dict[str, float]:
    """POST requests over one connection. Returns the time of each answer, by the message's id."""
    connection = http.client.HTTPConnection(address)
    answered: dict[str, float] = {}
    began = time.perf_counter()
    for number, request in enumerate(requests):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        connection.request("POST", "/upstream/webhook", request.body, dict(request.headers))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        at = time.time()
        value = orjson.loads(request.body)["entry"][0]["changes"][0]["value"]
        answered[value["messages"][0]["id"]] = at
    connection.close()
    return answered


def _event_ids(wamids: list[str]) -> dict[str, str]:
    """The public ids of the events of messages."""
    from gateway import ids

    with cursor() as database:
        database.execute("SELECT wamid, id FROM events WHERE wamid = ANY(%s)", [wamids])
        return {wamid: ids.encode("evt_", event_id) for wamid, event_id in database.fetchall()}
