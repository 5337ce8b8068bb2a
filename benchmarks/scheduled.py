"""Scheduled messages: how late each reaches the upstream, alone and beside a batch and another tenant's sends.

The upstream records the arrival of each message. A message must arrive at its `send_at` or at most two seconds later.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import requests

from benchmarks.bulkhead import send_request
from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business

MESSAGES, OVER_SECONDS, NUMBERS = 300, 15, 10
"""The messages of each run, the seconds over which their times are spread, and the sending numbers."""
SENDS_A_SECOND, BATCH = 50, 5_000
LATEST = 2_000.0


def run(harness: Harness) -> list[Result]:
    """Measure the messages alone, then beside a batch of the first number and sends of another business."""
    upstream = harness.simulator()
    settings = {"statuses": {"enabled": False}, "recipients": {"magic": False}, "keep": {"requests": 40_000}}
    _call("PUT", f"{upstream}/sim/settings", settings)
    businesses = [business(number, access_token=f"EAA{number}") for number in range(1, NUMBERS + 2)]
    for number, each in enumerate(businesses, 1):
        of_number = {"phone_number_id": each.phone_number_id}
        account = {"waba_id": each.waba_id, "access_token": f"EAA{number}", "numbers": [of_number]}
        _call("POST", f"{upstream}/sim/accounts", account)
    url = harness.web(META_GRAPH_URL=upstream, API_RATE_PER_SECOND="100000", API_RATE_BURST="100000")
    harness.worker(name="batches", role="batches", META_GRAPH_URL=upstream)
    scheduling, other = businesses[:-1], businesses[-1]
    results: list[Result] = []
    for what in ("alone", f"beside a batch and {SENDS_A_SECOND} sends/s"):
        first = datetime.now(UTC) + timedelta(seconds=10)
        due = _schedule(url, scheduling, first, what)
        if results:
            messages = [
                {"to": f"+91{place:010d}", "type": "text", "text": {"body": "Hello"}}
                for place in range(BATCH)
            ]
            body = {"from": scheduling[0].phone_number_id, "messages": messages}
            _call("POST", f"{url}/v1/messages/batch", body, scheduling[0])
            seconds = int((max(due.values()) - datetime.now(UTC).timestamp()) + 2)
            sends = [send_request(other, number) for number in range(SENDS_A_SECOND * seconds)]
            raw_client.post_steadily(f"{url}/v1/messages", sends, concurrency=8, rate=SENDS_A_SECOND)
        results.append(_result(harness, upstream, what, due))
    return results


def _schedule(url: str, businesses: Sequence[Business], first: datetime, what: str) -> dict[str, float]:
    """Schedule the messages evenly over the numbers and seconds. Returns the due time of each, by its text."""
    due = {}
    for place in range(MESSAGES):
        each = businesses[place % NUMBERS]
        at = first + timedelta(seconds=place * OVER_SECONDS / MESSAGES)
        text = f"{what}: {place}"
        message = {"to": f"+9199{place:08d}", "type": "text", "text": {"body": text}}
        body = {"from": each.phone_number_id, "send_at": at.isoformat(), **message}
        _call("POST", f"{url}/v1/messages/scheduled", body, each)
        due[text] = at.timestamp()
    return due


def _result(harness: Harness, upstream: str, what: str, due: dict[str, float]) -> Result:
    found: dict[str, list[float]] = {}

    def all_there() -> bool:
        found.clear()
        for row in _call("GET", f"{upstream}/sim/requests?limit=40000")["data"]:
            text = _text_of(row)
            if text in due:
                found.setdefault(text, []).append(row["at"])
        return len(found) == len(due)

    harness.wait_until(all_there, harness.log("batches"), seconds=30)
    late = [(at - due[text]) * 1000 for text, arrivals in found.items() for at in arrivals]
    result = Result(
        f"{what}, latest {max(late):,.0f} ms",
        len(late),
        MESSAGES / OVER_SECONDS,
        unit="messages",
        percentiles=percentiles(late),
        target=f"0 to {LATEST:,.0f} ms late",
    )
    result.expect(len(late) == len(due), f"{len(late):,} messages arrived of {len(due):,}")
    result.expect(min(late) >= 0, f"one was {-min(late):.0f} ms early")
    result.expect(max(late) <= LATEST, f"one was {max(late):,.0f} ms late")
    return result


def _text_of(row: dict[str, Any]) -> str:
    body = orjson.loads(row["body"]) if row["path"].endswith("/messages") else {}
    return str(body["text"]["body"]) if "text" in body else ""


def _call(method: str, url: str, body: Any = None, of: Business | None = None) -> Any:
    headers = {"Authorization": f"Bearer {of.api_key}"} if of else {}
    answer = requests.request(method, url, json=body, headers=headers, timeout=30)
    answer.raise_for_status()
    return answer.json()
