"""Notifications over HTTP, signed, to two web processes: with 1 item each, and with 100.

The floor is the same route in the same web processes with a view that checks the signature and answers. Every item
must be an event, its body and a delivery when the run is over: exactly once.
"""

import hashlib
import hmac
import itertools
from collections import Counter

import orjson

from benchmarks.harness import Harness, Load, Measured, Request, cursor, post_all
from benchmarks.results import Result, percentiles
from benchmarks.seed import Business, business, endpoint

SMALL_COUNT, SMALL_CONCURRENCY = 4_000, 16
LARGE_COUNT, LARGE_CONCURRENCY, LARGE_ITEMS = 300, 4, 100
BUSINESSES = 20
ROUNDS = 4
OF_FLOOR = 0.40
ITEMS_PER_SECOND = 5_000

_numbers = itertools.count(1)


def run(harness: Harness) -> list[Result]:
    """Both sizes, each beside its floor."""
    businesses = [business(number) for number in range(1, BUSINESSES + 1)]
    for each in businesses:
        endpoint(each.tenant_id, "http://127.0.0.1:9/nobody")
    floor_url = harness.web(name="floor", ready="/ready", DJANGO_SETTINGS_MODULE="benchmarks.floor_settings")
    url = harness.web()
    small = _measure(
        harness, url, floor_url, businesses, items=1, count=SMALL_COUNT, concurrency=SMALL_CONCURRENCY
    )
    small.target = f"≥ {OF_FLOOR:.2f} of floor"
    small.expect((small.ratio or 0) >= OF_FLOOR, f"{small.ratio:.2f} of the floor, not {OF_FLOOR:.2f}")
    large = _measure(
        harness,
        url,
        floor_url,
        businesses,
        items=LARGE_ITEMS,
        count=LARGE_COUNT,
        concurrency=LARGE_CONCURRENCY,
    )
    large.target = f"≥ {ITEMS_PER_SECOND:,} items/s"
    large.expect(large.rate >= ITEMS_PER_SECOND, f"{large.rate:,.0f} items/s, not {ITEMS_PER_SECOND:,}")
    return [small, large]


def _measure(
    harness: Harness,
    url: str,
    floor_url: str,
    businesses: list[Business],
    *,
    items: int,
    count: int,
    concurrency: int,
) -> Result:
    def post(to: str, number: int) -> tuple[Load, Measured]:
        requests = [_notification(businesses[n % BUSINESSES], items) for n in range(number)]
        with harness.measure() as measured:
            load = post_all(f"{to}/upstream/webhook", requests, concurrency=concurrency)
        return load, measured

    for each in (floor_url, url):
        post(each, count // 10)
    before = _stored()
    # In turns, so that whatever else the machine does meets both.
    rounds = [(post(floor_url, count // ROUNDS), post(url, count // ROUNDS)) for _ in range(ROUNDS)]
    floor, floor_seconds, _ = _together([floor for floor, _ in rounds])
    load, seconds, cpu = _together([service for _, service in rounds])
    result = Result(
        f"{items} item{'s' * (items > 1)}",
        count * items,
        count * items / seconds,
        unit="items",
        percentiles=percentiles(load.milliseconds),
        cpu={name: spent / (count * items) * 1e6 for name, spent in cpu.items() if spent > 0.01},
        floor=count * items / floor_seconds,
    )
    result.expect(floor.statuses == {200: count}, f"the floor answered {floor.statuses}")
    result.expect(load.statuses == {200: count}, f"the service answered {load.statuses}")
    stored = {name: rows - before[name] for name, rows in _stored().items()}
    expected = {
        "events": count * items,
        "payloads": count * items + count,
        "deliveries": count * items,
        "distinct": count * items,
    }
    result.expect(stored == expected, f"stored {stored}, not {expected}")
    return result


def _together(parts: list[tuple[Load, Measured]]) -> tuple[Load, float, dict[str, float]]:
    """The rounds of one side as one: the load, wall seconds, CPU seconds by process."""
    load, seconds, cpu = Load(), 0.0, Counter[str]()
    for part, measured in parts:
        load.milliseconds += part.milliseconds
        load.statuses = dict(Counter(load.statuses) + Counter(part.statuses))
        seconds += measured.seconds
        cpu.update(measured.cpu)
    return load, seconds, dict(cpu)


def _stored() -> dict[str, int]:
    with cursor() as database:
        database.execute(
            "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM event_payloads), "
            "(SELECT count(*) FROM webhook_deliveries), (SELECT count(DISTINCT dedupe_key) FROM events)"
        )
        row = database.fetchone()
    return dict(zip(("events", "payloads", "deliveries", "distinct"), row, strict=True))


def _notification(of: Business, items: int) -> Request:
    """Inbound texts of different customers to one number, as the upstream writes and signs them."""
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
