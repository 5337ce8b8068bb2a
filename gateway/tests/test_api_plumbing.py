"""Every response of the API: error shape, headers, limits, version, rate limit, lists."""

import asyncio
import io
import os
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson
import psycopg
import pytest
import redis
from django.core.exceptions import PermissionDenied, RequestDataTooBig, TooManyFieldsSent
from django.db import OperationalError, connection
from django.http import Http404, UnreadablePostError
from django.test import Client, RequestFactory
from django.urls import resolve
from rest_framework import exceptions as drf
from rest_framework import serializers

from gateway.api import health_views, limits, pagination
from gateway.api.authentication import TENANT_HEADER
from gateway.api.errors import PayloadTooLarge, exception_handler
from gateway.api.json import parse_object
from gateway.api.validation import checked
from gateway.clock import now
from gateway.urls import handler500
from gateway.valkey import connection as valkey_module
from messaging import pacing
from tenants import platform_apps, tenant_settings
from tenants.credentials import api_keys, key_cache
from tenants.models import PlatformApp, Tenant
from tests.fixtures import Api, assert_error, assert_service_headers
from tests.raw_server import raw_server

pytestmark = pytest.mark.django_db


def test_an_unknown_path_and_a_wrong_method_have_the_error_shape(api: Api) -> None:
    assert_error(api.get("/v1/nothing/here"), 404, "not_found")
    answer = api.delete("/v1/tenant")
    error = assert_error(answer, 405, "method_not_allowed")
    assert (answer["Allow"], error["message"]) == (
        "GET, PATCH, HEAD, OPTIONS",
        "This resource supports only GET, PATCH, HEAD.",
    )
    assert_error(api.get("/upstream/nothing"), 404, "not_found")


def test_an_address_that_is_not_the_services_is_named(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["api.gateway.example"]
    answer = Client().get("/v1/tenant", headers={"Host": "10.0.0.7:8000"})
    assert "Host header" in assert_error(answer, 400, "invalid_request")["message"]


def test_a_page_that_does_not_exist_is_a_page_with_the_headers() -> None:
    answer = Client().get("/no-such-page", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")
    assert_service_headers(answer)


def test_a_crash_is_500_without_a_trace_of_its_cause(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(**_: Any) -> None:
        raise RuntimeError("a secret of the tenant")

    monkeypatch.setattr(tenant_settings, "change", explode)
    answer = api.patch("/v1/tenant", {"name": "x"})
    assert_error(answer, 500, "internal_error")
    assert "secret" not in answer.content.decode()


def test_an_unreachable_database_is_503_and_says_when_to_come_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(**_: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(tenant_settings, "change", unreachable)
    answer = api.patch("/v1/tenant", {"name": "x"})
    error = assert_error(answer, 503, "service_unavailable")
    assert answer["Retry-After"] == "1"
    # It may have been the answer to a COMMIT that was lost.
    assert error["message"] == "The service cannot reach its database right now."
    assert "may have been made" in error["hint"]


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (drf.NotAuthenticated(), 401, "unauthorized"),
        (drf.AuthenticationFailed(), 401, "unauthorized"),
        (drf.PermissionDenied(), 403, "forbidden"),
        (PermissionDenied(), 403, "forbidden"),
        (drf.NotFound(), 404, "not_found"),
        (Http404(), 404, "not_found"),
        (drf.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (drf.UnsupportedMediaType("text/csv"), 415, "unsupported_media_type"),
        (RequestDataTooBig("too big"), 413, "payload_too_large"),
        (UnreadablePostError("gone"), 400, "invalid_request"),
        (TooManyFieldsSent(), 400, "invalid_request"),
        (drf.ParseError("no JSON"), 400, "invalid_request"),
        (drf.ValidationError("wrong"), 400, "invalid_request"),
        (OperationalError("gone"), 503, "service_unavailable"),
        (KeyError("x"), 500, "internal_error"),
        (PayloadTooLarge(), 413, "payload_too_large"),
    ],
)
def test_what_a_view_raises_is_answered_by_its_kind(raised: Exception, status: int, code: str) -> None:
    answer = exception_handler(raised, {})
    assert (answer.status_code, orjson.loads(answer.content)["error"]["code"]) == (status, code)


def test_what_is_wrong_with_a_body_is_said_in_the_readers_words() -> None:
    for raised in (RequestDataTooBig("At most 5 bytes."), drf.ParseError("Not JSON.")):
        assert orjson.loads(exception_handler(raised, {}).content)["error"]["message"] == str(raised)


@pytest.mark.parametrize(
    ("path", "raised", "status", "code"),
    [
        ("/oauth/token", OperationalError("gone"), 503, "service_unavailable"),
        ("/oauth/token", KeyError("x"), 500, "internal_error"),
        ("/internal/x", KeyError("x"), 500, "internal_error"),
        ("/login", OperationalError("gone"), 500, None),
    ],
)
def test_a_crash_outside_of_the_api_is_json_for_programs(
    path: str, raised: Exception, status: int, code: str | None
) -> None:
    try:
        raise raised
    except (OperationalError, KeyError):
        answer = handler500(RequestFactory().get(path))
    assert answer.status_code == status
    if code is None:
        assert answer["Content-Type"].startswith("text/html")
    else:
        assert orjson.loads(answer.content)["error"]["code"] == code


def test_problems_in_nested_objects_and_lists_are_named_by_their_place() -> None:
    detail = {"a": [{"b": ["x", "y"]}, {}, {"b": {"c": ["z"]}}], "d": ["q"]}
    for problems, fields in (
        (detail, {"a[0].b": ["x", "y"], "a[2].b.c": ["z"], "d": ["q"]}),
        (["w"], {"body": ["w"]}),
    ):
        answer = exception_handler(drf.ValidationError(problems), {})  # type: ignore[arg-type]
        assert orjson.loads(answer.content)["error"]["details"] == {"fields": fields}


def test_an_id_in_the_path_of_another_kind_is_sent_to_its_own(api: Api) -> None:
    own = {
        "wamid.1": "/v1/messages/",
        "bat_1": "/v1/messages/batch/",
        "sch_1": "/v1/messages/scheduled/",
        "evt_1": "/v1/events/",
        "dlv_1": "/v1/webhook-deliveries/",
        "cs_1": "/v1/connect-sessions/",
        "req_1": "/v1/requests/",
    }
    for name, place in own.items():
        prefix = name.removesuffix("1")
        for path in {"/v1/events/", "/v1/requests/", place}:
            hint = assert_error(api.get(f"{path}{name}"), 404, "not_found")["hint"]
            says = f"An id that begins with `{prefix}` belongs to {place}{{id}}."
            assert (hint == says) == (path != place), (name, path)


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        (None, {}),
        ("", {}),
        ("wb_live_" + "x" * 40, {}),
        ("x" * 5000, {}),
        ("wbc_unknown", {}),
        (None, {"Authorization": "Basic d2I6"}),
        (None, {"Authorization": "Bearer"}),
    ],
)
def test_missing_and_invalid_credentials_are_401(token: str | None, headers: dict[str, str]) -> None:
    answer = Api(token, **headers).get("/v1/tenant")
    assert_error(answer, 401, "unauthorized")
    assert answer["WWW-Authenticate"] == "Bearer"


def test_the_word_bearer_and_the_tenants_own_id_may_be_in_any_case(
    api: Api, tenant: Tenant, other_tenant: Tenant, key: api_keys.NewKey
) -> None:
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert Api(None, Authorization=f"{scheme} {key.key}").get("/v1/tenant").status_code == 200
    for own in (str(tenant.id), str(tenant.id).upper()):
        assert api.get("/v1/tenant", X_Service_Tenant=own).status_code == 200
    for other in (str(other_tenant.id), "", "x", str(tenant.id)[:-1]):
        assert_error(api.get("/v1/tenant", X_Service_Tenant=other), 403, "forbidden")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"null", b'{"a": NaN}', b"\xff{}"])
def test_a_body_that_is_no_json_object_is_400(api: Api, body: bytes) -> None:
    error = assert_error(api.post("/v1/api-keys", body), 400, "invalid_request")
    assert error["details"] or "details" not in error["hint"], "the hint leads to what is not there"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a":' + b"[" * 199 + b"]" * 199 + b"}", None),
        (b'{"b":[],"a":' + b"[" * 199 + b"]" * 199 + b"}", None),
        (b'{"b":[],"a":' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper than 200"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, None),
        (b'{"a":' * 201 + b"1" + b"}" * 201, "nested deeper than 200"),
        (b'{"a":"' + b"[" * 300 + b'"}', None),
        (b'{"a":[' + b"1," * 19_997 + b"1]}", None),
        (b'{"a":[' + b"1," * 19_998 + b"1]}", None),
        (b'{"a":[' + b"1," * 19_999 + b"1]}", "more than 20,000 values"),
    ],
)
def test_a_body_has_a_bounded_depth_and_number_of_values(body: bytes, says: str | None) -> None:
    if says is None:
        assert "a" in parse_object(body)
        return
    with pytest.raises(drf.ParseError, match=says):
        parse_object(body)


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("/v1/api-keys", {"name": 5}, "name", "in quotes"),
        ("/v1/api-keys", {"name": 1.5}, "name", "in quotes"),
        ("/v1/numbers/1/two-step", {"pin": 123456}, "pin", "in quotes"),
        ("/v1/numbers/connect", {"waba_id": 5, "access_token": "x"}, "waba_id", "in quotes"),
        ("/v1/tenant", {"retention_days": "90"}, "retention_days", "without quotes"),
        ("/v1/webhooks", {"url": "https://shop.example", "ordered": "true"}, "ordered", "without quotes"),
        ("/v1/webhooks", {"url": "https://shop.example", "ordered": 1}, "ordered", "without quotes"),
        (
            "/v1/webhooks",
            {"url": "https://shop.example", "timeout_seconds": "5"},
            "timeout_seconds",
            "without quotes",
        ),
    ],
)
def test_a_member_has_the_json_type_of_the_contract(
    api: Api, path: str, body: dict[str, Any], field: str, says: str
) -> None:
    call = api.patch if path == "/v1/tenant" else api.post
    error = assert_error(call(path, body), 400, "invalid_request")
    assert says in error["details"]["fields"][field][0]


class Inner(serializers.Serializer[Any]):
    word = serializers.CharField(required=False)


class Body(serializers.Serializer[Any]):
    word = serializers.CharField(required=False)
    count = serializers.IntegerField(required=False)
    is_on = serializers.BooleanField(required=False)
    names = serializers.ListField(child=serializers.CharField(), required=False)
    extra = serializers.DictField(required=False)
    mode = serializers.ChoiceField(choices=["1", "b"], required=False)
    level = serializers.ChoiceField(choices=[1, 2], required=False)
    inner = Inner(required=False)


@pytest.mark.parametrize(
    ("member", "good", "wrong", "says"),
    [
        ("word", "5", [5, 1.5], "Must be a string: put it in quotes."),
        ("count", 5, ["5"], "Must be a whole number, without quotes."),
        ("is_on", True, [1, 0, "true"], "Must be true or false, without quotes."),
        ("names", ["a"], ["a", {"a": 1}, 5], "Must be a list, in square brackets."),
        ("extra", {"a": 1}, [["a"], "a", 5], "Must be an object, in curly brackets."),
        ("mode", "1", [1], "Must be a text: put it in quotes."),
        ("level", 1, ["1"], "Must be a number, without quotes."),
        ("inner", {"word": "a"}, [], ""),
    ],
)
def test_each_kind_of_member_has_its_json_type(
    member: str, good: object, wrong: list[object], says: str
) -> None:
    assert checked(Body(data={member: good})) == {member: good}
    for value in wrong:
        with pytest.raises(drf.ValidationError) as refused:
            checked(Body(data={member: value}))
        assert refused.value.detail == {member: [says]}, value


def test_an_unknown_member_is_named_with_its_place_unless_the_body_is_open() -> None:
    given = {"word": "a", "wrod": 1, "inner": {"word": "a", "wodr": 1}, "x" * 200: 1}
    with pytest.raises(drf.ValidationError) as refused:
        checked(Body(data=given))
    problems: Any = refused.value.detail
    assert list(problems) == ["wrod", "x" * 100, "inner.wodr"]
    assert problems["wrod"][0].startswith(
        "This member is unknown. Did you mean word? The known ones are: count,"
    )
    assert problems["inner.wodr"] == ["This member is unknown. Did you mean word? The known ones are: word."]
    assert checked(Body(data=given), is_open=True) == {"word": "a", "inner": {"word": "a"}}
    with pytest.raises(drf.ValidationError) as refused:
        checked(Body(data={f"x{number}": 1 for number in range(50)}))
    assert list(refused.value.detail) == [f"x{number}" for number in range(20)]


def test_another_content_type_is_415(api: Api) -> None:
    answer = api.client.generic(
        "POST",
        "/v1/api-keys",
        b"name=x",
        content_type="application/x-www-form-urlencoded",
        headers=api.headers,
    )
    error = assert_error(answer, 415, "unsupported_media_type")
    assert error["hint"] == "Send `Content-Type: application/json`."


def test_a_body_over_the_limit_is_413_before_it_is_read(api: Api) -> None:
    error = assert_error(api.post("/v1/api-keys", b" " * (1024 * 1024 + 1)), 413, "payload_too_large")
    assert error["details"] == {"limit_bytes": 1024 * 1024}


def test_a_body_of_a_mebibyte_is_taken(api: Api) -> None:
    body = b'{"name":"Backend"%b}'
    body %= b" " * (1024 * 1024 - len(body) + 2)
    assert len(body) == 1024 * 1024
    assert api.post("/v1/api-keys", body).status_code == 201


@pytest.mark.parametrize("piece", [-1, 1, 7, 100])
@pytest.mark.parametrize(("size", "is_taken"), [(99, True), (100, True), (101, False), (500, False)])
def test_a_chunked_body_is_read_up_to_its_limit(size: int, is_taken: bool, piece: int) -> None:
    body = limits.ChunkedBody(io.BytesIO(b"x" * size))
    body.limit = 100
    read, error = 0, None
    try:
        while data := body.read(piece):
            read += len(data)
    except RequestDataTooBig as raised:
        error = raised
    assert (read == size and error is None) if is_taken else (read <= 100 and error is not None)


def test_of_thousands_of_wrong_items_the_first_twenty_are_named(api: Api) -> None:
    answer = api.post("/v1/webhooks", {"url": "https://example.org", "event_types": [["*"]] * 9000})
    fields = assert_error(answer, 400, "invalid_request")["details"]["fields"]
    assert list(fields) == [f"event_types.{place}" for place in range(20)]


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/api-keys", 1024 * 1024),
        ("/login", 64 * 1024),
        ("/admin/login/", 64 * 1024),
        ("/v1/messages", 1024 * 1024),
        ("/v1/templates", 1024 * 1024),
        ("/v1/messages/batch", 32 * 1024 * 1024),
        ("/internal/razorpay/webhook", 1024 * 1024),
        ("/v1/media", 101 * 1024 * 1024),
        ("/v1/templates/media-handle", 101 * 1024 * 1024),
    ],
)
def test_limits_are_by_view(path: str, limit: int) -> None:
    assert limits.limit_of(resolve(path).func) == limit


def test_the_version_can_be_pinned_and_an_unknown_one_is_400(api: Api) -> None:
    assert api.get("/v1/tenant", X_Service_Version="2026-10-16").status_code == 200
    error = assert_error(api.get("/v1/tenant", X_Service_Version="2025-01-01"), 400, "invalid_request")
    assert "X-Service-Version" in error["details"]["fields"]


def test_the_rate_limit_is_a_tenants_own_and_names_the_wait(api: Api, other_api: Api, settings: Any) -> None:
    settings.API_RATE_PER_SECOND, settings.API_RATE_BURST = 0.4, 3
    answers = [api.get("/v1/tenant") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer["RateLimit-Remaining"] for answer in answers[:3]] == ["2", "1", "0"]
    assert (answers[0]["RateLimit-Limit"], answers[0]["RateLimit-Reset"]) == ("3", "3"), "2.5 seconds"
    assert_error(answers[3], 429, "rate_limited")
    assert 1 <= int(answers[3]["Retry-After"]) <= 3
    assert other_api.get("/v1/tenant").status_code == 200


def test_one_tenant_of_a_platform_uses_up_its_own_rate_alone(settings: Any) -> None:
    settings.API_RATE_PER_SECOND, settings.API_RATE_BURST = 0.01, 2
    app = platform_apps.create_app(name="Platform")
    key = platform_apps.create_app_key(app_id=app.id, name="k", environment="live").key
    busy, quiet = (
        Api(key, **{TENANT_HEADER: str(Tenant.objects.create(name=name, app=app, status="active").id)})
        for name in ("Busy", "Quiet")
    )
    assert [busy.get("/v1/tenant").status_code for _ in range(3)] == [200, 200, 429]
    assert [quiet.get("/v1/tenant").status_code for _ in range(3)] == [200, 200, 429]


def test_without_valkey_calls_are_allowed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = redis.Redis.from_url("unix:///nonexistent.sock", retry=None)
    for client in (
        "gateway.valkey.token_bucket.quick_valkey",
        "tenants.credentials.key_cache.quick_valkey",
        "tenants.credentials.key_cache.valkey",
        "tenants.credentials.api_keys.valkey",
    ):
        monkeypatch.setattr(client, lambda: gone)
    assert api.get("/v1/tenant").status_code == 200
    assert valkey_module.valkey() is not gone


@pytest.fixture
def hanging_valkey(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """A Valkey that accepts connections and never answers. Yields a list with an entry for each connection."""
    connections: list[None] = []

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        connections.append(None)
        while await reader.read(1024):
            pass

    valkey_module.valkey()  # it keeps the address of the first call
    monkeypatch.setattr(valkey_module, "QUICK_SECONDS", 0.05)
    monkeypatch.setattr(valkey_module, "ALONE_SECONDS", 600.0)
    monkeypatch.setattr(valkey_module.LeavesHangingAlone, "alone_until", 0.0)
    with raw_server(hang) as url:
        settings.REDIS_URL = url.replace("http", "redis")
        valkey_module.quick_valkey.cache_clear()
        yield connections
    valkey_module.quick_valkey.cache_clear()


def test_calls_wait_only_once_for_a_valkey_that_hangs(
    api: Api, other_api: Api, hanging_valkey: list[None], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    limited = "RateLimit-Limit"
    for caller in (api, other_api, api, other_api):
        key_cache.clear_process_cache()
        limits.allowance.clear()
        answer = caller.get("/v1/tenant")
        assert (answer.status_code, limited in answer) == (200, False)
    pacer = pacing.Pacer(phone_number_id="1", rate=80)
    assert pacer.turns()
    assert len(hanging_valkey) == 1
    settings.REDIS_URL = os.environ["REDIS_URL"]
    valkey_module.quick_valkey.cache_clear()
    assert limited not in api.get("/v1/tenant"), "it is left alone for a while"
    monkeypatch.setattr(valkey_module.LeavesHangingAlone, "alone_until", time.monotonic())
    assert limited in api.get("/v1/tenant")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("failure", ["refused", "hanging"])
def test_health_without_a_database_is_503_within_two_seconds(
    monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    def cursor(*_: Any, **__: Any) -> Any:
        if failure == "hanging":
            time.sleep(3)
        raise OperationalError("gone")

    monkeypatch.setattr(type(connection._connections["default"]), "cursor", cursor)  # type: ignore[attr-defined]
    started = time.monotonic()
    answer = Client().get("/v1/health")
    assert time.monotonic() - started < 2
    assert answer.status_code == 503
    assert answer.json() == {"ok": False, "sha": "unknown", "db": "error"}
    assert_service_headers(answer)
    monkeypatch.undo()
    deadline = time.monotonic() + 10
    while not health_views.database_answers():
        assert time.monotonic() < deadline, "the check recovers when the database does"


@pytest.mark.django_db(transaction=True)
def test_health_does_not_wait_for_a_slow_check_of_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def is_migrated() -> bool:
        begun.set()
        return goes_on.wait(30)

    monkeypatch.setattr(health_views, "_is_migrated", is_migrated)
    readiness = threading.Thread(target=health_views.readiness)
    readiness.start()
    try:
        assert begun.wait(30)
        assert health_views.database_answers()
    finally:
        goes_on.set()
        readiness.join()


@pytest.mark.django_db(transaction=True)
def test_a_health_check_whose_connection_ended_opens_another_next_time() -> None:
    def end_connection(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        with suppress(psycopg.OperationalError):
            context["connection"].connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(end_connection):
        assert not health_views._query()
    assert health_views._query()


def make_tenants(app: PlatformApp, count: int) -> None:
    for number in range(count):
        platform_apps.create_for_app(
            app_id=app.id, name=f"t{number}", external_ref=None, retention_days=90, sandbox=False
        )


def test_a_list_is_paged_newest_first_and_stable_while_rows_are_added(
    platform_app: PlatformApp, app_key: api_keys.NewKey
) -> None:
    api = Api(app_key.key)
    make_tenants(platform_app, 5)
    first = api.get("/v1/tenants?limit=2").json()
    make_tenants(platform_app, 1)
    second = api.get(f"/v1/tenants?limit=2&cursor={first['next_cursor']}").json()
    third = api.get(f"/v1/tenants?limit=2&cursor={second['next_cursor']}").json()
    assert [row["name"] for page in (first, second, third) for row in page["data"]] == [
        "t4", "t3", "t2", "t1", "t0",
    ]  # fmt: skip
    assert third["next_cursor"] is None


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "", "1.5", "٣", "9" * 30, "1" * 5000])
def test_a_limit_out_of_range_is_400(app_key: api_keys.NewKey, limit: str) -> None:
    error = assert_error(Api(app_key.key).get(f"/v1/tenants?limit={limit}"), 400, "invalid_request")
    assert list(error["details"]["fields"]) == ["limit"]


@pytest.mark.parametrize("cursor", ["x", "!!!", "é", "AAAA", "%00", "MTIz"])
def test_a_cursor_that_cannot_be_read_is_400(app_key: api_keys.NewKey, cursor: str) -> None:
    error = assert_error(Api(app_key.key).get(f"/v1/tenants?cursor={cursor}"), 400, "invalid_request")
    assert list(error["details"]["fields"]) == ["cursor"]


def test_a_cursor_of_another_list_is_400(
    platform_app: PlatformApp, app_key: api_keys.NewKey, api: Api
) -> None:
    make_tenants(platform_app, 2)
    cursor = Api(app_key.key).get("/v1/tenants?limit=1").json()["next_cursor"]
    for path in ("/v1/api-keys", "/v1/events", "/v1/webhooks"):
        error = assert_error(api.get(f"{path}?cursor={cursor}"), 400, "invalid_request")
        assert "another list" in error["details"]["fields"]["cursor"][0]


def test_a_cursor_of_before_cursors_named_their_list_is_accepted_until_a_day(
    platform_app: PlatformApp, app_key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tenants(platform_app, 2)
    api = Api(app_key.key)
    newest, oldest = api.get("/v1/tenants").json()["data"]
    path = f"/v1/tenants?cursor={urlsafe_b64encode(newest['id'].encode()).decode().rstrip('=')}"
    assert api.get(path).json()["data"] == [oldest]
    monkeypatch.setattr(pagination, "UNBOUND_UNTIL", now())
    assert "cursor" in assert_error(api.get(path), 400, "invalid_request")["details"]["fields"]


def test_server_timing_adds_up(api: Api, tenant: Tenant) -> None:
    answer = api.get("/v1/tenant")
    own = float(answer["Server-Timing"].split("wb;dur=")[1].split(",")[0])
    assert answer["Server-Timing"].endswith("meta;dur=0.0")
    assert answer["X-Service-Processing-Ms"] == str(round(own))
    assert orjson.loads(answer.content)["id"] == str(tenant.id)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/v1/events", "/v1/webhook-deliveries"])
@pytest.mark.parametrize("name", ["from", "to"])
@pytest.mark.parametrize(
    ("moment", "status"),
    [
        ("1969-12-31T23:59:59Z", 400),
        ("1970-01-01T00:00:00%2B05:30", 400),
        ("1970-01-01T05:29:59%2B05:30", 400),
        ("1970-01-01T05:30:00%2B05:30", 200),
        ("1969-12-31T23:00:00-05:00", 200),
        ("0001-01-01T00:00:00%2B14:00", 400),
        ("9999-12-31T23:59:59-12:00", 400),
    ],
)
def test_a_moment_before_1970_in_any_offset_is_400(
    api: Api, path: str, name: str, moment: str, status: int
) -> None:
    answer = api.get(f"{path}?{name}={moment}")
    assert answer.status_code == status, answer.content
    if status == 400:
        assert list(assert_error(answer, 400, "invalid_request")["details"]["fields"]) == [name]


def test_a_web_process_starts_without_the_package_of_agents() -> None:
    start = "from gateway import __main__, urls; __main__._web_server('127.0.0.1', 0, loops=[])"
    program = f"import django, sys; django.setup(); {start}; sys.exit('mcp_types' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
