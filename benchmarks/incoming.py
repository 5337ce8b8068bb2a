"""Notifications of 100 items through one web process, compared with a bare listener.

The benchmark `intake` has one item in each notification.

The floor checks the signature and inserts the body as one row. At the end, every item must have exactly one event, one
body and one delivery.
"""

import hashlib
import hmac
import itertools

import orjson

from benchmarks.equipment import floors
from benchmarks.equipment.harness import Harness, Request, cursor
from benchmarks.equipment.raw_client import WARM_UP, Requests
from benchmarks.equipment.results import Result
from benchmarks.equipment.seed import Business, business, endpoint

COUNT, CONCURRENCY, ITEMS = 320, 4, 100
BUSINESSES = 20
OF_FLOOR, CPU_OF_FLOOR, POSTGRES_OF_FLOOR = 0.08, 9.0, 20.0
"""Required share of the bare listener's rate, and the highest multiples of its CPU and of its Postgres' CPU."""

_numbers = itertools.count(1)


def run(harness: Harness) -> list[Result]:
    """Measure one load in turns with the floor."""
    notifications = notifications_of(ITEMS)
    url = f"{harness.web()}/upstream/webhook"
    before = stored()
    result = floors.beside(
        harness,
        (floors.listener(harness), notifications),
        (url, notifications),
        what=f"{ITEMS} items, {CONCURRENCY} in flight",
        unit="items",
        count=COUNT,
        concurrency=CONCURRENCY,
        units=ITEMS,
    )
    result.expect_rate(OF_FLOOR)
    result.expect_cpu(("web",), CPU_OF_FLOOR, floor=(floors.LISTENER,))
    result.expect_cpu(("postgres",), POSTGRES_OF_FLOOR, floor=(floors.POSTGRES,))
    expect_stored(result, before, COUNT + COUNT // WARM_UP, items=ITEMS)
    return [result]


def notifications_of(items: int) -> Requests:
    """A function that makes notifications of `items` messages each, for new businesses with endpoints, in turn."""
    businesses = [business(number) for number in range(1, BUSINESSES + 1)]
    for each in businesses:
        endpoint(each.tenant_id, "http://127.0.0.1:9/nobody")
    return lambda count: [notification(businesses[n % BUSINESSES], items) for n in range(count)]


def expect_stored(result: Result, before: dict[str, int], notifications: int, *, items: int) -> None:
    """Record a failure unless each item of the notifications has exactly one event, one body and one delivery."""
    found = {name: rows - before[name] for name, rows in stored().items()}
    taken = notifications * items
    expected = {"events": taken, "payloads": taken + notifications, "deliveries": taken, "distinct": taken}
    result.expect(found == expected, f"stored {found}, not {expected}")


def stored() -> dict[str, int]:
    """The number of rows in each table, and the number of different events."""
    with cursor() as database:
        database.execute(
            "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM event_payloads), "
            "(SELECT count(*) FROM webhook_deliveries), (SELECT count(DISTINCT dedupe_key) FROM events)"
        )
        row = database.fetchone()
    return dict(zip(("events", "payloads", "deliveries", "distinct"), row, strict=True))


def notification(of: Business, items: int) -> Request:
    """A notification with inbound texts of different customers to one number, in the upstream's form and signed."""
    from django.conf import settings

    numbers = [next(_numbers) for _ in range(items)]
    value = {
        "messaging_product": "whatsapp",
        "metadata": {
            "display_phone_number": of.display_phone_number,
            "phone_number_id": of.phone_number_id,
        },
        "contacts": [
            {
                "profile": {"name": f"Customer {number}"},
                "wa_id": f"91{number:010d}",
                "user_id": f"IN.{number}",
            }
            for number in numbers
        ],
        "messages": [
            {
                "from": f"91{number:010d}",
                "from_user_id": f"IN.{number}",
                "id": f"wamid.{number:048d}",
                "timestamp": "1793500000",
                "type": "text",
                "text": {"body": f"Is order {number} on its way? I would like to have it by Friday."},
            }
            for number in numbers
        ],
    }
    body = orjson.dumps(
        {
            "object": "whatsapp_business_account",
            "entry": [{"id": of.waba_id, "changes": [{"field": "messages", "value": value}]}],
        }
    ).replace(b"/", rb"\/")
    digest = hmac.new(settings.META_APP_SECRET.encode(), body, hashlib.sha256).hexdigest()
    return Request(body, {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={digest}"})
