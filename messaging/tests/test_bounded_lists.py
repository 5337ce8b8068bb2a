"""Lists with filters that match few or no rows. Each page reads a limited number of rows, and the next page continues
where it stopped.
"""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gateway import ids
from gateway.clock import now
from gateway.database import bounded_walk, partitions
from tenants.models import Tenant
from tests.fixtures import Api

pytestmark = pytest.mark.django_db

ROWS = 3_000
WALKED = 300
# A fifth of the rows has the number 7, and a twentieth has the searched type. Only the oldest row has both, and only
# this row has the rare customer.
_NUMBERED = """
WITH made AS (
    SELECT n, (lpad(to_hex((floor(extract(epoch FROM now() - make_interval(days => %(days)s)) * 1000))::bigint - n),
        12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid AS id
    FROM generate_series(1, %(rows)s) AS n
)
"""
_LOAD = {
    "events": """
        INSERT INTO events (id, tenant_id, environment, type, dedupe_key, payload_expires_on, phone_number_id, waba_id,
                            wa_id)
        SELECT id, %(tenant)s, 'live', CASE WHEN n %% 20 = 0 AND (n %% 5 <> 1 OR n = %(rows)s)
               THEN 'message.status' ELSE 'message.inbound' END, 'k' || n, current_date + 30,
               CASE WHEN n %% 5 = 1 OR n = %(rows)s THEN '7' ELSE '8' END, '1',
               CASE WHEN n = %(rows)s THEN '91999' ELSE '91' || n END FROM made""",
    "webhook_deliveries": """
        INSERT INTO webhook_deliveries (id, tenant_id, environment, endpoint_id, event_id, event_type, status, attempts,
                                        attempt_log, is_replay)
        SELECT id, %(tenant)s, 'live', gen_random_uuid(), id, 'message.inbound',
               CASE WHEN n = %(rows)s THEN 'dead' ELSE 'delivered' END, 1, '[]', false FROM made""",
    "messages": """
        INSERT INTO messages (tenant_id, environment, key, month, id, direction, phone_number_id, wa_id, type)
        SELECT %(tenant)s, 'live', 'wamid.' || n, date_trunc('month', now())::date, id,
               CASE WHEN n = %(rows)s THEN 'inbound' ELSE 'outbound' END, '8', '91' || n %% 2, 'text' FROM made""",
    "api_requests": """
        INSERT INTO api_requests (id, tenant_id, environment, method, route, status, own_ms, upstream_ms)
        SELECT id, %(tenant)s, 'live', 'GET', '/v1/numbers', CASE WHEN n = %(rows)s THEN 500 ELSE 200 END, 1, 0
        FROM made""",
}


def load(table: str, tenant: Tenant, *, days: int = 0, rows: int = ROWS) -> None:
    """Insert rows that are `days` days old."""
    with connection.cursor() as cursor:
        cursor.execute(_NUMBERED + _LOAD[table], {"tenant": tenant.id, "rows": rows, "days": days})
        cursor.execute(f"ANALYZE {table}")


def rows_read(table: str, statement: str) -> int:
    """How many rows of the table a statement reads, including those that its scans filter out."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        (plan,) = cursor.fetchone()
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in _nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
        if node.get("Relation Name", "").startswith(table)
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


@pytest.mark.parametrize(
    ("table", "path", "walks"),
    [
        ("events", "/v1/events?phone_number_id=7&type=message.status", 2),
        ("events", "/v1/events?phone_number_id=8&wa_id=91999", 1),
        ("events", "/v1/events?waba_id=2&phone_number_id=8", 2),
        ("events", "/v1/events?type=message.status,message.inbound&phone_number_id=9", 2),
        ("webhook_deliveries", "/v1/webhook-deliveries?status=dead", 1),
        ("webhook_deliveries", "/v1/webhook-deliveries?endpoint_id=00000000-0000-7000-8000-000000000000", 1),
        ("messages", "/v1/messages?direction=inbound", 1),
        ("messages", "/v1/messages?wa_id=911&template=x", 1),
        ("messages", "/v1/messages?status=failed&template=x", 1),
        ("api_requests", "/v1/requests?status=5xx", 1),
    ],
)
def test_a_page_reads_a_bounded_number_of_rows(
    api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, table: str, path: str, walks: int
) -> None:
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", WALKED)
    if table == "events":
        with connection.cursor() as cursor:
            # Pages and index entries from earlier tests could change the plan.
            cursor.execute("TRUNCATE events")
    load(table, tenant)
    with CaptureQueriesContext(connection) as queries:
        answer = api.get(f"{path}&limit=10")
    assert answer.status_code == 200, answer.content
    searches = [each["sql"] for each in queries if f"FROM {table}" in (each["sql"] or "")]
    read = sum(rows_read(table, statement) for statement in searches)
    assert searches
    assert read <= walks * WALKED + 2 * bounded_walk.FIRST_WALK * 11


@pytest.mark.parametrize(
    ("table", "path", "name", "expected"),
    [
        ("events", "/v1/events?phone_number_id=7&type=message.status", "wa_id", ["91999"]),
        ("webhook_deliveries", "/v1/webhook-deliveries?status=dead", "status", ["dead"]),
        ("messages", "/v1/messages?direction=inbound", "id", [f"wamid.{ROWS}"]),
        ("api_requests", "/v1/requests?status=5xx", "status", [500]),
    ],
)
def test_pages_go_on_to_the_rare_row(
    api: Api,
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    path: str,
    name: str,
    expected: list[Any],
) -> None:
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", WALKED)
    load(table, tenant)
    found, cursor, pages = [], "", 0
    while True:
        body = api.get(f"{path}{cursor}").json()
        found += [row[name] for row in body["data"]]
        pages += 1
        if body["next_cursor"] is None:
            break
        cursor = f"&cursor={body['next_cursor']}"
    assert found == expected
    assert pages <= ROWS // WALKED + 1


@pytest.mark.parametrize(("rows", "walked"), [(ROWS, WALKED), (200, 8)])
def test_pages_of_several_types_miss_and_repeat_nothing(
    api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch, rows: int, walked: int
) -> None:
    """The walk of the rare type reaches further back than the walk of the common type, or both end early."""
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", walked)
    load("events", tenant, rows=rows)
    found, cursor = [], ""
    while True:
        path = f"/v1/events?type=message.status,message.inbound&waba_id=1&limit=200{cursor}"
        body = api.get(path).json()
        found += [row["id"] for row in body["data"]]
        if body["next_cursor"] is None:
            break
        cursor = f"&cursor={body['next_cursor']}"
    assert len(found) == rows
    assert found == sorted(set(found), reverse=True)


def test_a_rare_type_of_a_busy_number_is_one_page(
    api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two indexes can serve the search. The search uses the walk that reaches further back, which here is the walk of
    the type.
    """
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", WALKED)
    load("events", tenant)
    body = api.get("/v1/events?phone_number_id=7&type=message.status").json()
    assert len(body["data"]) == 1
    assert body["next_cursor"] is None


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ("events", "/v1/events?phone_number_id=8&limit=10"),
        ("events", "/v1/events?type=message.status,message.inbound&limit=10"),
        ("messages", "/v1/messages?wa_id=911&limit=10"),
    ],
)
def test_a_page_of_recent_rows_with_a_filter_is_planned_for_few_partitions(
    api: Api, tenant: Tenant, table: str, path: str
) -> None:
    """The plan covers the partitions of last week, this week and, because clocks differ, next week. For a monthly
    table, it covers months instead.
    """
    partitions.make_from(table, (now() - timedelta(days=200)).date())
    load(table, tenant)
    with CaptureQueriesContext(connection) as queries:
        assert len(api.get(path).json()["data"]) == 10
    (search,) = [each["sql"] for each in queries if f"FROM {table}" in (each["sql"] or "")]
    assert partitions_of(search) <= 3


@pytest.mark.parametrize("table", ["events", "webhook_deliveries"])
def test_a_new_tenants_page_is_planned_for_few_partitions(api: Api, tenant: Tenant, table: str) -> None:
    """The installation is old and other tenants have older rows. The plan includes no partition that is older than this
    tenant's oldest row.
    """
    partitions.make_from(table, (now() - timedelta(days=400)).date())
    stranger = Tenant.objects.create(name="An old tenant", status=Tenant.Status.ACTIVE)
    load(table, stranger, days=300, rows=30)
    path = f"/v1/{table.replace('_', '-')}?limit=10"
    assert api.get(path).json()["data"] == []
    load(table, tenant, days=10, rows=3)
    with CaptureQueriesContext(connection) as queries:
        body = api.get(path).json()
    assert (len(body["data"]), body["next_cursor"]) == (3, None)
    # The text of the prepared statement that finds the oldest row is not captured.
    searches = [each["sql"] for each in queries if f"FROM {table}" in (each["sql"] or "")]
    assert searches
    assert max(partitions_of(search) for search in searches) <= 5


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_tenants_rows_of_any_age_are_listed(
    api: Api, tenant: Tenant, settings: Any, is_prepared: bool
) -> None:
    settings.DATABASE_PREPARED_STATEMENTS = is_prepared
    partitions.make_from("webhook_deliveries", (now() - timedelta(days=400)).date())
    for days in (390, 100, 8):
        load("webhook_deliveries", tenant, days=days, rows=2)
    assert len(api.get("/v1/webhook-deliveries").json()["data"]) == 6


def partitions_of(statement: str) -> int:
    """How many partitions a statement is planned for."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}")
        (plan,) = cursor.fetchone()
    nodes = _nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return len({node["Relation Name"] for node in nodes if "Relation Name" in node})


def test_pages_go_on_where_recent_rows_end(api: Api, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page has rows on both sides of the bound. The last row of another page is the last recent row."""
    monkeypatch.setattr(bounded_walk, "RECENT", bounded_walk.CLOCKS_DIFFER + timedelta(milliseconds=1_500))
    load("events", tenant)
    for limit in (200, 7):
        found: list[str] = []
        cursor = ""
        while len(found) < 2_000:
            body = api.get(f"/v1/events?limit={limit}{cursor}").json()
            found += [row["id"] for row in body["data"]]
            cursor = f"&cursor={body['next_cursor']}"
        assert len(set(found)) == len(found)
        assert found == sorted(found, reverse=True)
        with connection.cursor() as database:
            database.execute("SELECT id FROM events ORDER BY id DESC LIMIT %s", [len(found)])
            assert found == [ids.encode(ids.EVENT, event_id) for (event_id,) in database.fetchall()]


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ("events", "/v1/events"),
        ("webhook_deliveries", "/v1/webhook-deliveries"),
        ("messages", "/v1/messages"),
        ("api_requests", "/v1/requests"),
    ],
)
@pytest.mark.parametrize("stored", [0, 15])
def test_one_plan_for_all_tenants_reads_only_the_rows_of_the_caller(
    api: Api, tenant: Tenant, other_tenant: Tenant, table: str, path: str, stored: int
) -> None:
    """Nearly all rows belong to another tenant. A generic plan must not read these rows."""
    if stored:
        load(table, tenant, days=1, rows=stored)
    load(table, other_tenant)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        before = _rows_of_transaction(table)
        answer = api.get(f"{path}?limit=10")
        assert len(answer.json()["data"]) == min(stored, 10), answer.content
        assert _rows_of_transaction(table) - before <= 2 * bounded_walk.FIRST_WALK * 11


def _rows_of_transaction(table: str) -> int:
    """How many rows of a table's partitions this transaction has read."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname LIKE %s",
            [f"{table}%"],
        )
        (rows,) = cursor.fetchone()
    return int(rows)
