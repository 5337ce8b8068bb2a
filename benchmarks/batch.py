"""Batches: one at 80 messages a second for 20 seconds, and one of 10,000 messages at 1,000 a second.

The simulator records the arrival of each message. The rate is computed from these times, in every window of five
seconds. At the end, every item must have reached the upstream once, been accepted and become one event.
"""

import bisect
from collections import Counter
from typing import Any

import orjson
import requests

from benchmarks.equipment.harness import Harness, cursor
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import Business, business

WINDOW = 5.0
WITHIN = 0.02
MEMORY_MEGABYTES = 200
LONGEST_SECONDS = 11.0


def run(harness: Harness) -> list[Result]:
    """Measure both rates. The upstream throttles like Meta."""
    from phone_numbers.models import PhoneNumber

    upstream = harness.simulator()
    settings = {"statuses": {"enabled": False}, "recipients": {"magic": False}, "keep": {"requests": 40_000}}
    _control(upstream, "settings", settings, method="PUT")
    slow, fast = business(1, access_token="EAAslow"), business(2, access_token="EAAfast")
    PhoneNumber.objects.filter(phone_number_id=fast.phone_number_id).update(throughput_level="HIGH")
    for each, token, throughput in ((slow, "EAAslow", "STANDARD"), (fast, "EAAfast", "HIGH")):
        number = {"phone_number_id": each.phone_number_id, "throughput": throughput}
        _control(
            upstream,
            "accounts",
            {"waba_id": each.waba_id, "access_token": token, "numbers": [number]},
        )
    url = harness.web(META_GRAPH_URL=upstream)
    harness.worker(name="batches", role="batches", META_GRAPH_URL=upstream)
    return [
        _measure(harness, upstream, url, slow, count=1_600, rate=80),
        _measure(harness, upstream, url, fast, count=10_000, rate=1_000),
    ]


def _measure(harness: Harness, upstream: str, url: str, each: Business, *, count: int, rate: int) -> Result:
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, _megabytes(harness.running["batches"].pid))
        return bool(_call(url, each, "GET", f"/{made['id']}")["completed_at"])

    messages = [
        {"to": f"+91{place:010d}", "type": "text", "text": {"body": f"Order {place} has left us."}}
        for place in range(count)
    ]
    with harness.measure() as measured:
        made = _call(url, each, "POST", "", {"from": each.phone_number_id, "messages": messages})
        harness.wait_until(ended, "the batch did not end", seconds=count / rate * 3 + 10)
    rows = _control(upstream, f"requests?node={each.phone_number_id}&limit=20000", None, method="GET")
    arrivals = sorted(row["at"] for row in rows["data"] if row["path"].endswith("/messages"))
    seconds = arrivals[-1] - arrivals[0]
    result = Result(
        f"{count:,} at {rate:,}/s",
        count,
        (count - 1) / seconds,
        unit="messages",
        cpu=measured.cpu_per(count),
        target=f"± {WITHIN:.0%} in 5 s, ≤ {MEMORY_MEGABYTES} MB ({most} MB)",
    )
    slowest, fastest = _windows(arrivals)
    result.expect(fastest <= rate * (1 + WITHIN), f"{fastest:.1f}/s in the fastest window")
    result.expect(slowest >= rate * (1 - WITHIN), f"{slowest:.1f}/s in the slowest window")
    result.expect(most <= MEMORY_MEGABYTES, f"the worker took {most} MB")
    if rate == 1_000:
        result.expect(seconds <= LONGEST_SECONDS, f"it took {seconds:.1f} s")
    batch = _call(url, each, "GET", f"/{made['id']}")
    result.expect(
        (batch["status"], batch["accepted"], batch["failed"]) == ("completed", count, 0),
        f"the batch is {batch}",
    )
    bodies = Counter(row["body"] for row in rows["data"])
    result.expect(len(arrivals) == count == len(bodies), f"{len(arrivals)} messages, {len(bodies)} different")
    result.expect(_events(each) == count, f"{_events(each)} events of {count} messages")
    return result


def _windows(arrivals: list[float]) -> tuple[float, float]:
    """The lowest and the highest rate in any window of five seconds that lies within the run."""
    last = arrivals[-1] - WINDOW
    counts = [
        bisect.bisect_left(arrivals, at + WINDOW) - place for place, at in enumerate(arrivals) if at <= last
    ]
    return min(counts) / WINDOW, max(counts) / WINDOW


def _call(url: str, each: Business, method: str, path: str, body: Any = None) -> Any:
    answer = requests.request(
        method,
        f"{url}/v1/messages/batch{path}",
        data=orjson.dumps(body) if body else None,
        headers={"Authorization": f"Bearer {each.api_key}", "Content-Type": "application/json"},
        timeout=30,
    )
    answer.raise_for_status()
    return answer.json()


def _control(upstream: str, path: str, body: Any, *, method: str = "POST") -> Any:
    answer = requests.request(method, f"{upstream}/sim/{path}", json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


def _events(each: Business) -> int:
    with cursor() as database:
        database.execute(
            "SELECT count(DISTINCT dedupe_key) FROM events WHERE type = 'message.outbound' AND tenant_id = %s",
            [each.tenant_id],
        )
        return int(database.fetchone()[0])


def _megabytes(process_id: int) -> int:
    """The resident memory of a process, in MiB."""
    with open(f"/proc/{process_id}/status") as status:  # noqa: PTH123 - a pseudo file
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
