"""Notifications over HTTP, signed, to two web processes: with 1 item each, and with 100.

The floor is the same route in the same web processes with a view that checks the signature and answers. Every item
must be an event, its body and a delivery when the run is over: exactly once.
"""

import hashlib
import hmac
import itertools

import orjson

from benchmarks.equipment.harness import WARM_UP, Harness, Request, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint

SMALL_COUNT, SMALL_CONCURRENCY = 8_000, 32
LARGE_COUNT, LARGE_CONCURRENCY, LARGE_ITEMS = 320, 4, 100
BUSINESSES = 20
OF_FLOOR = 0.40
ITEMS_PER_SECOND = 5_000

_numbers = itertools.count(1)


def run(harness: Harness) -> list[Result]:
    """Both sizes, each beside its floor."""
    businesses = [business(number) for number in range(1, BUSINESSES + 1)]
    for each in businesses:
        endpoint(each.tenant_id, "http://127.0.0.1:9/nobody")
    floor_url = harness.web(
        name="floor", ready="/ready", DJANGO_SETTINGS_MODULE="benchmarks.equipment.floor_settings"
    )
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
    def notifications(number: int) -> list[Request]:
        return [notification(businesses[n % BUSINESSES], items) for n in range(number)]

    before = stored()
    floor, service = harness.in_turns(
        f"{floor_url}/upstream/webhook",
        f"{url}/upstream/webhook",
        notifications,
        count=count,
        concurrency=concurrency,
    )
    result = Result(
        f"{items} item{'s' * (items > 1)}",
        count * items,
        count * items / service.seconds,
        unit="items",
        percentiles=percentiles(service.load.milliseconds),
        cpu=service.cpu_per(count * items),
        floor=count * items / floor.seconds,
    )
    result.expect(floor.load.statuses == {200: count}, f"the floor answered {floor.load.statuses}")
    result.expect(service.load.statuses == {200: count}, f"the service answered {service.load.statuses}")
    found = {name: rows - before[name] for name, rows in stored().items()}
    taken = count + count // WARM_UP
    expected = {
        "events": taken * items,
        "payloads": taken * items + taken,
        "deliveries": taken * items,
        "distinct": taken * items,
    }
    result.expect(found == expected, f"stored {found}, not {expected}")
    return result


def stored() -> dict[str, int]:
    """How many rows there are, and how many different events."""
    with cursor() as database:
        database.execute(
            "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM event_payloads), "
            "(SELECT count(*) FROM webhook_deliveries), (SELECT count(DISTINCT dedupe_key) FROM events)"
        )
        row = database.fetchone()
    return dict(zip(("events", "payloads", "deliveries", "distinct"), row, strict=True))


def notification(of: Business, items: int) -> Request:
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
