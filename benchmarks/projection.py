"""The message log: its CPU for a send and for a notification, and the look-up of one message among ten million.

The same sends and notifications go in turns to two web processes. One of them writes no message log. Then
PROJECTION_MESSAGES messages (default 10,000,000) with times over two years are bulk-loaded, and messages of any age are
looked up over HTTP, one after another.
"""

import http.client
import os
import random
import time
from urllib.parse import urlsplit

from benchmarks import send
from benchmarks.equipment import raw_client
from benchmarks.equipment.harness import Harness, Side, cursor
from benchmarks.equipment.results import Result, percentiles
from benchmarks.equipment.seed import Business, business, endpoint
from benchmarks.incoming import notification

SENDS, NOTIFICATIONS = 8_000, 8_000
CONCURRENCY = 32
MOST = 0.10
"""Limit for the additional CPU of the web process and Postgres together, as a share of the CPU without the message log.
"""
MESSAGES = int(os.environ.get("PROJECTION_MESSAGES", "10000000"))
DAYS = 725
TENANTS = 20
LOOKED_UP = 1_000
WARM_UP = 100
P95_MS = 5.0

# UUIDv7s of the past two years: the first 48 bits are the millisecond, the other bits are random.
_LOAD = """
INSERT INTO messages (tenant_id, environment, key, month, id, direction, phone_number_id, wa_id, type, event_id,
                      accepted_at, sent_at, delivered_at, pricing_category, service_ms, upstream_ms)
SELECT (%(tenants)s::uuid[])[n %% %(count)s + 1], 'live',
       'wamid.' || upper(md5(n::text) || substr(md5(n::text), 1, 16)),
       date_trunc('month', at AT TIME ZONE 'UTC')::date, id, 'outbound', '200300400500001',
       '9198' || lpad((n %% 1000000)::text, 8, '0'), 'text', id, at, at, at, 'utility', 3, 90
FROM (
    SELECT n, at, (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0')
                   || '7' || substr(md5('i' || n), 1, 3) || '8' || substr(md5('i' || n), 4, 15))::uuid AS id
    FROM generate_series(%(first)s::int, %(last)s::int) AS n
    CROSS JOIN LATERAL (
        SELECT now() - make_interval(secs => %(days)s * 86400.0 * (1 - n::float8 / %(size)s) + 60) AS at
    ) AS made
) AS numbered
"""
# For each message to look up: an event with the body, an event of a status, and a delivery of each event.
_EVENTS = """
WITH sampled AS (
    INSERT INTO events (id, tenant_id, environment, type, wamid, phone_number_id, wa_id, status, dedupe_key,
                        payload_expires_on)
    SELECT CASE kind WHEN 0 THEN m.id ELSE (substr(m.id::text, 1, 15) || substr(gen_random_uuid()::text, 16))::uuid END,
           m.tenant_id, m.environment, CASE kind WHEN 0 THEN 'message.outbound' ELSE 'message.status' END, m.key,
           m.phone_number_id, m.wa_id, CASE kind WHEN 1 THEN 'delivered' END, m.key || kind, current_date + 60
    FROM messages m CROSS JOIN generate_series(0, 1) AS kind WHERE m.key = ANY(%(keys)s)
    RETURNING id, tenant_id, type
), body AS (
    INSERT INTO event_payloads (expires_on, id, tenant_id, body)
    SELECT current_date + 60, id, tenant_id, convert_to('{"request": {"type": "text"}, "http_status": 200}', 'UTF8')
    FROM sampled
)
INSERT INTO webhook_deliveries (id, tenant_id, endpoint_id, event_id, event_type, status, attempts, attempt_log,
                                is_replay)
SELECT id, tenant_id, gen_random_uuid(), id, type, 'delivered', 1, '[]', false FROM sampled
"""


def run(harness: Harness) -> list[Result]:
    """Measure the CPU first, while the tables are small, then the look-ups."""
    each = business()
    endpoint(each.tenant_id, "http://127.0.0.1:9/nobody")
    return [*_costs(harness, each), _look_ups(harness, each)]


def _costs(harness: Harness, each: Business) -> list[Result]:
    environment = {
        "META_GRAPH_URL": harness.bare_upstream(),
        "API_RATE_PER_SECOND": "100000",
        "API_RATE_BURST": "100000",
    }
    bare = {**environment, "DJANGO_SETTINGS_MODULE": "benchmarks.equipment.settings_without_messages"}
    results: list[Result] = []
    without, with_log = harness.web(name="without", **bare), harness.web(name="with", **environment)
    for what, path, requests, count in (
        ("sends", "/v1/messages", lambda number: [send.message([each]) for _ in range(number)], SENDS),
        (
            "notifications",
            "/upstream/webhook",
            lambda number: [notification(each, 1) for _ in range(number)],
            NOTIFICATIONS,
        ),
    ):
        rows = _rows()
        unlogged, logged = raw_client.in_turns(
            harness,
            (without + path, requests),
            (with_log + path, requests),
            count=count,
            concurrency=CONCURRENCY,
        )
        own, floor = _cpu(logged, "with", count), _cpu(unlogged, "without", count)
        result = Result(
            f"{what} with the message log",
            count,
            count / logged.seconds,
            percentiles=percentiles(logged.load.milliseconds),
            cpu=logged.cpu_per(count),
            floor=count / unlogged.seconds,
            target=f"≤ {MOST:.0%} more CPU",
        )
        result.expect(
            own <= floor * (1 + MOST), f"{own:.0f} µs of the web process and Postgres beside {floor:.0f}"
        )
        for load in (unlogged.load, logged.load):
            result.expect(load.statuses == {200: count}, f"answered {load.statuses}")
        expected = count + count // raw_client.WARM_UP
        result.expect(_rows() - rows == expected, f"{_rows() - rows} messages of {expected}")
        results += [
            Result(f"{what} without it", count, count / unlogged.seconds, cpu=unlogged.cpu_per(count)),
            result,
        ]
    return results


def _cpu(side: Side, process: str, count: int) -> float:
    cpu = side.cpu_per(count)
    return cpu[process] + cpu["postgres"]


def _rows() -> int:
    with cursor() as database:
        database.execute("SELECT count(*) FROM messages")
        return int(database.fetchone()[0])


def _look_ups(harness: Harness, each: Business) -> Result:
    began = time.monotonic()
    keys = _load(each)
    loaded = time.monotonic() - began
    url = urlsplit(harness.web(REQUEST_LOG_DAYS="0", API_RATE_PER_SECOND="100000", API_RATE_BURST="100000"))
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    milliseconds: list[float] = []
    statuses: dict[int, int] = {}

    def ask(key: str) -> None:
        asked = time.perf_counter()
        connection.request("GET", f"/v1/messages/{key}", headers={"Authorization": f"Bearer {each.api_key}"})
        answer = connection.getresponse()
        answer.read()
        milliseconds.append((time.perf_counter() - asked) * 1000)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1

    for key in keys[:WARM_UP]:
        ask(key)
    with harness.measure() as measured:
        for key in keys[WARM_UP:]:
            ask(key)
    connection.close()
    timed = milliseconds[WARM_UP:]
    result = Result(
        f"look-up among {MESSAGES:,} (loaded in {loaded:.0f} s)",
        len(timed),
        1000 * len(timed) / sum(timed),
        percentiles=percentiles(timed),
        cpu=measured.cpu_per(len(timed)),
        target=f"p95 ≤ {P95_MS:.0f} ms",
    )
    p95 = (result.percentiles or {})["p95"]
    result.expect(p95 <= P95_MS, f"p95 {p95:.1f} ms, not {P95_MS:.0f}")
    result.expect(statuses == {200: len(keys)}, f"answered {statuses}")
    return result


def _load(each: Business) -> list[str]:
    """Load the messages, and the events of the messages to look up. Returns the wamids of the messages to look up."""
    from django.utils import timezone

    from gateway.database import partitions

    first_day = timezone.now().date()
    for table in ("events", "webhook_deliveries", "messages"):
        partitions.make_from(table, first_day.fromordinal(first_day.toordinal() - DAYS - 31))
    tenants = [each.tenant_id, *(business(number).tenant_id for number in range(2, TENANTS + 1))]
    step = 1_000_000
    with cursor() as database:
        database.execute("SET synchronous_commit = off")
        # The indexes are created after the load. Updating them row by row would take most of the time.
        database.execute(
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE indrelid = 'messages'::regclass AND NOT indisprimary"
        )
        indexes = database.fetchall()
        for name, _ in indexes:
            database.execute(f"DROP INDEX {name}")
        for first in range(0, MESSAGES, step):
            last = min(first + step, MESSAGES) - 1
            place = {"first": first, "last": last, "size": MESSAGES, "days": DAYS}
            database.execute(_LOAD, {"tenants": tenants, "count": TENANTS, **place})
        for _, definition in indexes:
            database.execute(definition)
        numbers = random.sample(range(0, MESSAGES, TENANTS), LOOKED_UP + WARM_UP)
        database.execute(
            "SELECT 'wamid.' || upper(md5(n::text) || substr(md5(n::text), 1, 16)) FROM unnest(%s) AS n",
            [numbers],
        )
        keys = [key for (key,) in database.fetchall()]
        database.execute(_EVENTS, {"keys": keys})
        database.execute("VACUUM ANALYZE messages, events, event_payloads, webhook_deliveries")
        database.execute("CHECKPOINT")
    return keys
