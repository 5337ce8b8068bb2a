"""`/v1/requests*` over HTTP: what the log stores of a call, who may read it, how it is searched."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from uuid import UUID

import pytest
import structlog
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from gateway import ids
from gateway.api import access_log
from gateway.api.access_log import FinishedCall
from gateway.api.authentication import Caller, TenantFacts
from gateway.api.limits import API_BODY_BYTES
from gateway.clock import now
from gateway.database import bounded_walk, partitions
from gateway.request_log import recorder
from gateway.request_log.models import ApiRequest
from tenants.credentials import api_keys
from tenants.models import PlatformApp, Tenant
from tests.fixtures import Api, assert_error, wait_until

pytestmark = pytest.mark.django_db

Write = Callable[[], None]


def call_of(
    tenant: Tenant, *, status: int = 200, at: datetime | None = None, **facts: object
) -> FinishedCall:
    """A call of a tenant's key, without an HTTP request."""
    request_id = ids.uuid7() if at is None else UUID(int=ids.first_at(at).int | ids.uuid7().int % 2**60)
    caller = Caller(
        "tenant_key",
        "live",
        tenant=TenantFacts(tenant.id, "active", False, None),
        key_prefix="wb_live_abcdefgh",
    )
    members = {
        "method": "GET",
        "route": "/v1/numbers",
        "error_code": None,
        "own_ms": 1.5,
        "upstream_ms": 0.0,
        **facts,
    }
    return FinishedCall(request_id=request_id, caller=caller, status=status, **members)  # type: ignore[arg-type]


def store(*calls: FinishedCall) -> None:
    for call in calls:
        recorder.record(call)
    recorder.write()


@pytest.mark.django_db(transaction=True)
def test_a_call_is_logged_without_ids_bodies_and_numbers(
    api: Api, key: api_keys.NewKey, tenant: Tenant, write: Write
) -> None:
    answer = api.post(
        "/v1/messages",
        {"from": "+919812345678", "to": "+919800000001", "type": "text", "text": {"body": "hi"}},
    )
    assert answer.status_code == 400
    write()
    request_id = answer["X-Service-Request-Id"]
    line = api.get(f"/v1/requests/{request_id}").json()
    timing = re.fullmatch(r"wb;dur=([\d.]+), meta;dur=([\d.]+)", answer["Server-Timing"])
    assert timing is not None
    assert abs(datetime.fromisoformat(line.pop("created_at")) - now()) < timedelta(seconds=30)
    assert line == {
        "id": request_id,
        "method": "POST",
        "route": "/v1/messages",
        "status": 400,
        "error_code": "invalid_request",
        "key_prefix": key.row.prefix,
        "environment": "live",
        "service_ms": float(timing[1]),
        "upstream_ms": float(timing[2]),
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT r::text FROM api_requests r")
        assert "9198" not in cursor.fetchall()[0][0]


def test_a_path_is_logged_as_its_pattern(api: Api, write: Write) -> None:
    api.get("/v1/numbers/200300400500600")
    api.get("/v1/nothing/919812345678")
    api.get("/v25.0/200300400500600/whatsapp_business_profile")
    api.get("/v25.0/200300400500600/anything_at_all")
    write()
    rows = api.get("/v1/requests").json()["data"]
    assert [(row["route"], row["status"], row["error_code"]) for row in rows] == [
        ("/{version}/{node}/{edge}", 400, "not_found"),
        ("/{version}/{node}/whatsapp_business_profile", 400, "not_found"),
        (None, 404, "not_found"),
        ("/v1/numbers/{phone_number_id}", 404, "not_found"),
    ]


def test_a_refused_call_of_a_known_caller_is_logged_and_a_strangers_is_not(
    key: api_keys.NewKey, tenant: Tenant, api: Api, write: Write, settings: Settings
) -> None:
    Api("wb_live_" + "x" * 40).get("/v1/numbers")
    Api(None).get("/v1/numbers")
    assert_error(api.get("/v1/admin/tenants"), 403, "forbidden")
    settings.API_RATE_BURST, settings.API_RATE_PER_SECOND = 1, 0.01
    statuses = {api.get("/v1/numbers").status_code for _ in range(3)}
    assert 429 in statuses
    write()
    logged = set(ApiRequest.objects.values_list("status", "error_code", "tenant_id"))
    assert (403, "forbidden", tenant.id) in logged
    assert (429, "rate_limited", tenant.id) in logged
    assert not [row for row in logged if row[0] == 401]


def test_a_body_over_the_limit_is_logged_for_its_caller_and_a_strangers_is_401(
    api: Api, tenant: Tenant, write: Write
) -> None:
    too_large = b" " * (API_BODY_BYTES + 1)
    assert_error(api.post("/v1/api-keys", too_large), 413, "payload_too_large")
    assert_error(Api(None).post("/v1/api-keys", too_large), 401, "unauthorized")
    write()
    (row,) = ApiRequest.objects.values_list("route", "status", "error_code", "tenant_id")
    assert row == ("/v1/api-keys", 413, "payload_too_large", tenant.id)


@pytest.mark.parametrize("sandbox", [False, True])
def test_a_platform_keys_call_belongs_to_the_tenant_it_acts_on(
    platform_app: PlatformApp, app_key: api_keys.NewKey, write: Write, sandbox: bool
) -> None:
    its = Tenant.objects.create(name="Shop", app=platform_app, status="active", sandbox=sandbox)
    api = Api(app_key.key, **{"X-Service-Tenant": str(its.id)})
    api.get("/v1/numbers")
    Api(app_key.key).get("/v1/tenants")
    write()
    (row,) = api.get("/v1/requests").json()["data"]
    assert (row["route"], row["key_prefix"]) == ("/v1/numbers", app_key.row.prefix)


def test_another_tenant_and_the_other_environment_see_nothing(
    api: Api, other_api: Api, tenant: Tenant, write: Write
) -> None:
    request_id = api.get("/v1/numbers")["X-Service-Request-Id"]
    test_api = Api(api_keys.create(name="t", environment="test", tenant=tenant).key)
    test_id = test_api.get("/v1/numbers")["X-Service-Request-Id"]
    write()
    assert [row["id"] for row in api.get("/v1/requests").json()["data"]] == [request_id]
    assert [row["id"] for row in test_api.get("/v1/requests").json()["data"]] == [test_id]
    assert other_api.get("/v1/requests").json()["data"] == []
    for stranger in (other_api, test_api):
        assert_error(stranger.get(f"/v1/requests/{request_id}"), 404, "not_found")
    assert_error(api.get("/v1/requests/req_nothing"), 404, "not_found")


def test_filters_and_cursor(api: Api, tenant: Tenant, write: Write) -> None:
    store(
        call_of(tenant),
        call_of(tenant, status=409, error_code="number_not_connected", method="POST", route="/v1/messages"),
        call_of(tenant, status=400, error_code="131047", method="POST", route="/v1/messages"),
        call_of(tenant, status=502, error_code="meta_unreachable", route="/v1/media/{media_id}"),
    )

    def statuses(query: str) -> list[int]:
        return [row["status"] for row in api.get(f"/v1/requests?{query}").json()["data"]]

    assert statuses("limit=200") == [502, 400, 409, 200]
    assert statuses("status=4xx") == [400, 409]
    assert statuses("status=409") == [409]
    assert statuses("error_code=131047") == [400]
    assert statuses("method=GET") == [502, 200]
    assert statuses("route=/v1/messages") == [400, 409]
    assert statuses("route=/v1/messages&status=409") == [409]
    assert statuses("key_prefix=wb_live_abcdefgh") == [502, 400, 409, 200]
    assert statuses("key_prefix=wb_live_other") == []
    assert_error(api.get("/v1/requests?status=40"), 400, "invalid_request")
    first = api.get("/v1/requests?limit=3").json()
    second = api.get(f"/v1/requests?limit=3&cursor={first['next_cursor']}").json()
    assert [row["status"] for row in first["data"] + second["data"]] == [502, 400, 409, 200]
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1xx", [199]),
        ("2xx", [200, 299]),
        ("3xx", [302]),
        ("5xx", [599, 500]),
        ("200", [200]),
        ("404", []),
        *(
            (text, None)
            for text in ("0xx", "6xx", "4XX", "xx", "40", "4x", "4040", "099", "600", "+40", " 404", "٤xx")
        ),
    ],
)
def test_calls_are_found_by_a_status_or_its_class(
    api: Api, tenant: Tenant, write: Write, text: str, found: list[int] | None
) -> None:
    store(*(call_of(tenant, status=status) for status in (500, 302, 299, 200, 199, 599)))
    answer = api.get(f"/v1/requests?status={quote(text)}")
    if found is None:
        assert list(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == ["status"]
    else:
        assert sorted(row["status"] for row in answer.json()["data"]) == sorted(found)


def test_a_line_has_its_callers_environment_and_key_and_fits_its_columns(
    api: Api, tenant: Tenant, write: Write
) -> None:
    call = call_of(tenant, method="X" * 40, upstream_ms=2.5)
    member = replace(call.caller, kind="console_user", key_prefix=None, role="owner")
    sandbox = replace(call.caller, tenant=TenantFacts(tenant.id, "active", True, None))
    store(*(call._replace(request_id=ids.uuid7(), caller=each) for each in (call.caller, member, sandbox)))
    by_key, by_member = api.get("/v1/requests").json()["data"][::-1]
    assert (by_key["method"], by_key["key_prefix"]) == ("X" * 16, "wb_live_abcdefgh")
    assert (by_key["service_ms"], by_key["upstream_ms"], by_key["environment"]) == (1.5, 2.5, "live")
    assert by_member["key_prefix"] is None
    assert ApiRequest.objects.get(environment="test").method == "X" * 16


def test_from_and_to_bound_the_time(api: Api, tenant: Tenant, write: Write) -> None:
    moment = now().astimezone(UTC).replace(microsecond=0)
    for hours in (1, 3, 5):
        store(call_of(tenant, at=moment - timedelta(hours=hours), status=200 + hours))

    def statuses(**bounds: int) -> list[int]:
        query = "&".join(
            f"{name}={(moment - timedelta(hours=hours)).strftime('%Y-%m-%dT%H:%M:%SZ')}"
            for name, hours in bounds.items()
        )
        return [row["status"] for row in api.get(f"/v1/requests?{query}").json()["data"]]

    assert statuses(to=2) == [203, 205]
    assert statuses(**{"from": 4}) == [201, 203]
    assert statuses(**{"from": 3, "to": 1}) == [203]


def test_what_is_older_than_the_log_is_not_shown(
    api: Api, tenant: Tenant, write: Write, settings: Settings
) -> None:
    old = call_of(tenant, at=now() - timedelta(days=2))
    store(old)
    public = ids.encode(ids.REQUEST, old.request_id)
    assert api.get(f"/v1/requests/{public}").status_code == 200
    settings.REQUEST_LOG_DAYS = 1
    assert_error(api.get(f"/v1/requests/{public}"), 404, "not_found")
    for query in ("", "?from=2026-01-01T00:00:00Z"):
        assert api.get(f"/v1/requests{query}").json()["data"] == []


def test_a_page_walks_a_bounded_number_of_calls(
    api: Api, tenant: Tenant, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_walk, "MOST_WALKED", 3)
    store(call_of(tenant, status=500, error_code="internal_error"), *(call_of(tenant) for _ in range(5)))
    first = api.get("/v1/requests?status=5xx").json()
    second = api.get(f"/v1/requests?status=5xx&cursor={first['next_cursor']}").json()
    assert [[row["status"] for row in page["data"]] for page in (first, second)] == [[], [500]]


def test_a_search_reads_its_tenants_index(api: Api, tenant: Tenant, write: Write) -> None:
    with CaptureQueriesContext(connection) as queries:
        api.get("/v1/requests?limit=10")
    search = [each["sql"] for each in queries if "api_requests" in (each["sql"] or "")][-1]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + search)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Sort  (" not in plan.partition("CTE walked")[2].partition("CTE ended")[0]
    assert re.search(r"Index Scan using api_requests\w*tenant_id_environment_id", plan), plan


def test_the_table_has_a_partition_for_each_day(db: None) -> None:
    assert f"api_requests_p{now():%Y_%m_%d}" in partitions._partitions(partitions._tables["api_requests"])


def test_off_nothing_is_logged(api: Api, write: Write, settings: Settings) -> None:
    settings.REQUEST_LOG_DAYS = 0
    api.get("/v1/numbers")
    write()
    assert not ApiRequest.objects.exists()


class Counted:
    """A counter that records the amounts added to it."""

    def __init__(self, amounts: list[float]) -> None:
        self.add = lambda amount=1: amounts.append(amount)


class TestPressure:
    def test_a_full_buffer_drops_and_counts(
        self, tenant: Tenant, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder, "MOST_WAITING", 3)
        counted: list[float] = []
        monkeypatch.setattr(recorder, "unlogged", Counted(counted))
        store(*(call_of(tenant) for _ in range(5)))
        assert (ApiRequest.objects.count(), counted) == (3, [1, 1])

    def test_one_tenant_cannot_push_out_the_lines_of_another(
        self, tenant: Tenant, other_tenant: Tenant, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder, "MOST_OF_ONE_TENANT", 2)
        store(*(call_of(tenant, status=429) for _ in range(9)), call_of(other_tenant))
        assert ApiRequest.objects.filter(tenant_id=tenant.id).count() == 2
        assert ApiRequest.objects.filter(tenant_id=other_tenant.id).count() == 1

    def test_what_was_written_makes_room_for_the_tenants_next_lines(
        self, tenant: Tenant, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder, "MOST_OF_ONE_TENANT", 2)
        for _ in range(3):
            store(call_of(tenant), call_of(tenant))
        assert ApiRequest.objects.filter(tenant_id=tenant.id).count() == 6

    def test_without_a_database_calls_are_answered_and_lines_dropped(
        self, tenant: Tenant, api: Api, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(calls: object) -> None:
            raise OperationalError("away")

        dropped: list[float] = []
        monkeypatch.setattr(recorder, "unlogged", Counted(dropped))
        with monkeypatch.context() as stopped:
            stopped.setattr(recorder, "_insert", away)
            assert api.get("/v1/numbers").status_code == 200
            write()
        assert dropped == [1]
        write()
        assert not ApiRequest.objects.exists()

    def test_a_code_that_no_column_takes_is_left_out(self) -> None:
        assert access_log.error_code_of(400, b'{"error": {"code": "a\\u0000b"}}') is None
        assert access_log.error_code_of(400, b'{"error": {"code": "' + b"x" * 65 + b'"}}') is None
        assert access_log.error_code_of(400, b'{"error": {"code": {"a": 1}}}') is None
        assert access_log.error_code_of(400, b'["error"]') is None
        assert access_log.error_code_of(502, b"<html>") is None
        assert access_log.error_code_of(400, b'{"error": {"code": 131047}}') == "131047"
        own = b'{"error": {"code": 100, "error_data": {"gateway_code": "not_found"}}}'
        assert access_log.error_code_of(404, own) == "not_found"
        assert access_log.error_code_of(404, own.replace(b"gateway_code", b"details")) == "100"
        assert access_log.error_code_of(399, own) is None
        for length, code in ((64 * 1024, "not_found"), (64 * 1024 + 1, None)):
            assert access_log.error_code_of(404, own.ljust(length)) == code
        assert access_log.error_code_of(200, b'{"error": {"code": 1}}') is None


@pytest.mark.django_db(transaction=True)
def test_a_call_that_the_database_refuses_costs_its_own_line_alone(tenant: Tenant, write: Write) -> None:
    good = [call_of(tenant) for _ in range(4)]
    store(*good[:2], call_of(tenant, error_code="a\0b"), *good[2:])
    assert {row.id for row in ApiRequest.objects.all()} == {call.request_id for call in good}


@pytest.fixture
def read_only_server(db: None) -> Iterator[None]:
    """A Postgres that rejects rows of the request log with the error of a read-only server."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'read-only'"
            " USING ERRCODE = '25006'; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON api_requests FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse CASCADE")


@pytest.mark.django_db(transaction=True)
def test_the_service_logs_why_lines_are_missing(tenant: Tenant, write: Write, read_only_server: None) -> None:
    with structlog.testing.capture_logs() as logged:
        store(call_of(tenant), call_of(tenant))
    expected = {"event": "request_log_unavailable", "error": "ReadOnlySqlTransaction", "dropped": 2}
    assert [line for line in logged if expected.items() <= line.items()]


@pytest.mark.django_db(transaction=True)
def test_the_thread_writes_within_seconds(api: Api, tenant: Tenant) -> None:
    access_log.register(recorder.record)
    try:
        request_id = ids.decode(ids.REQUEST, api.get("/v1/numbers")["X-Service-Request-Id"])
        wait_until(lambda: ApiRequest.objects.exists(), "the line was not written")
        assert [row.id for row in ApiRequest.objects.all()] == [request_id]
    finally:
        access_log.clear_listeners()
