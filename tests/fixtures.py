"""Fixtures for the tests of all apps: two tenants, a platform app, staff, and API clients for them."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.http import HttpResponseBase
from django.test import Client, TestCase
from pytest_django import Settings

from gateway.api import access_log, limits
from gateway.roles import ALL_SCOPES
from gateway.upstream import blocking_client
from gateway.valkey.cache import ValkeyCache
from messaging.notifications import routing
from tenants import platform_apps
from tenants.credentials import api_keys, bearer_tokens, key_cache
from tenants.models import ApiKey, PlatformApp, Tenant, User
from tests import undefined_variables
from tests.api_contract import uncounted_calls
from tests.api_contract.contract import assert_in_contract
from tests.scripted_graph import ScriptedGraph, scripted_graph

# Tests create many users, so passwords get a fast hash.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# The request log writes from its own thread, outside of a test's transaction. Only the tests of the log enable it.
access_log.clear_listeners()

undefined_variables.refuse()


class Api:
    """A client of the API with one credential. It sends JSON."""

    def __init__(self, token: str | None, **headers: str) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **headers: str,
    ) -> Any:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        # A test's transaction never commits, so `on_commit` callbacks run at the end of the request.
        with TestCase.captureOnCommitCallbacks(execute=True):
            response = self.client.generic(method, path, data, content_type=content_type, headers=sent)
        assert_in_contract(method, path, response)
        return response

    def get(self, path: str, **headers: str) -> Any:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.request("POST", path, body, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.request("PUT", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.request("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self.request("DELETE", path, **headers)


class UnreadableBody:
    """A body that fails the test when it is read."""

    def read(self, *_: Any) -> bytes:
        raise AssertionError("the body was read before its caller was checked")

    readline = read


def assert_error(response: HttpResponseBase, status: int, code: str) -> dict[str, Any]:
    """Check the shape of a service error. Returns its `error` member."""
    body = json.loads(response.content)  # type: ignore[attr-defined]
    assert response.status_code == status, body
    error = assert_error_body(body, code)
    assert response["X-Service-Error-Source"] == settings.SERVICE_NAME
    assert body["request_id"] == response["X-Service-Request-Id"]
    assert_service_headers(response)
    return error


def assert_error_body(body: dict[str, Any], code: str) -> dict[str, Any]:
    """Check the members of a service error's body. Returns its `error` member."""
    assert set(body) == {"source", "error", "request_id"}
    assert body["source"] == settings.SERVICE_NAME
    assert set(body["error"]) == {"code", "message", "details", "hint", "doc_url"}
    assert body["error"]["hint"]
    assert body["error"]["doc_url"] == f"{settings.BASE_URL}/errors#{code}"
    assert body["error"]["code"] == code, body
    error: dict[str, Any] = body["error"]
    return error


def wait_until(holds: Callable[[], bool], otherwise: str, *, seconds: float = 30.0) -> None:
    """Check every 10 ms until a condition holds. Fails with the message `otherwise` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


Result = TypeVar("Result")


def in_threads(*jobs: Callable[[], Result]) -> list[Result]:
    """Run jobs at the same moment, each in a thread with its own, open connection. Returns their results, in order.

    Raises the first error of a job.
    """
    together = threading.Barrier(len(jobs))

    def run(job: Callable[[], Result]) -> Result:
        try:
            connection.ensure_connection()
            together.wait(10)
            return job()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def waiting_for_locks() -> int:
    """Return how many connections wait for a lock of another connection. Works within a transaction too."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])


def a_lock_is_waited_for() -> bool:
    """Return whether any connection waits for a lock of another connection."""
    return waiting_for_locks() > 0


def assert_service_headers(response: HttpResponseBase) -> None:
    """Check the headers that every response has (specification 1 and 9)."""
    assert response["Server-Timing"].startswith("wb;dur=")
    assert ", meta;dur=" in response["Server-Timing"]
    assert response["X-Service-Processing-Ms"].isdigit()
    assert response["X-Service-Request-Id"].startswith("req_")
    assert response["X-Service-Version"] == settings.API_VERSION
    assert response["X-Content-Type-Options"] == "nosniff"


@pytest.fixture(autouse=True, scope="session")
def _no_open_connection() -> Iterator[None]:
    """Close the pooled connections to the Graph API at the end of the tests."""
    yield
    blocking_client.close()


@pytest.fixture(autouse=True, scope="session")
def _every_call_to_others_is_counted() -> Iterator[None]:
    """Fail a test in which a view waits for a network outside of a bulkhead."""
    with uncounted_calls.refused():
        yield


@pytest.fixture(autouse=True)
def _fresh_process_caches() -> None:
    """Clear what earlier tests left in the caches of this process."""
    key_cache.clear_process_cache()
    routing.clear()
    limits.allowance.clear()
    ValkeyCache.alone_until = 0.0


@contextmanager
def shared_rows() -> Iterator[None]:
    """Create rows for several tests inside the block. The end of the block rolls the rows back.

    Use it in a fixture of a class whose tests all roll back.
    """
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        yield
        transaction.set_rollback(True)


@pytest.fixture
def within_half_an_hour() -> None:
    """Wait if a half hour has just begun or is about to end, so that a test stays in one hour and day."""
    wait_until(lambda: 10 <= time.time() % 1800 < 1770, "half an hour begins within 40 seconds", seconds=60)


@pytest.fixture
def tenant(db: None) -> Tenant:
    """An active tenant."""
    return Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)


@pytest.fixture
def other_tenant(db: None) -> Tenant:
    """Another active tenant with its own objects."""
    return Tenant.objects.create(name="Bina Stores", status=Tenant.Status.ACTIVE)


def key_of(tenant: Tenant) -> api_keys.NewKey:
    """A live key of a tenant with every scope, as a row. `api_keys.create` would take five times as long."""
    key = f"wb_live_{secrets.token_hex(20)}"
    row = ApiKey.objects.create(
        tenant=tenant,
        name="server",
        environment=ApiKey.Environment.LIVE,
        scopes=sorted(ALL_SCOPES),
        prefix=key[: api_keys.PREFIX_CHARACTERS],
        key_hash=api_keys.hash_of(key),
    )
    return api_keys.NewKey(row, key)


@pytest.fixture
def key(tenant: Tenant) -> api_keys.NewKey:
    """A live key of `tenant`."""
    return key_of(tenant)


@pytest.fixture
def api(key: api_keys.NewKey) -> Api:
    """A client with the key of `tenant`."""
    return Api(key.key)


@pytest.fixture
def other_api(other_tenant: Tenant) -> Api:
    """A client with the key of `other_tenant`."""
    return Api(key_of(other_tenant).key)


@pytest.fixture
def platform_app(db: None) -> PlatformApp:
    """A platform app."""
    return platform_apps.create_app(name="Shop platform")


@pytest.fixture
def app_key(platform_app: PlatformApp) -> api_keys.NewKey:
    """A live key of `platform_app`."""
    return platform_apps.create_app_key(app_id=platform_app.id, name="platform", environment="live")


@pytest.fixture
def graph(settings: Settings) -> Iterator[ScriptedGraph]:
    """A scripted Graph API that replaces the live one. Each test sets its answers."""
    with scripted_graph() as graph:
        settings.META_GRAPH_URL = graph.url
        yield graph


@pytest.fixture
def staff(db: None) -> User:
    """A staff member with every permission."""
    return User.objects.create_superuser("staff@service.example", "a long enough password")


@pytest.fixture
def staff_api(staff: User) -> Api:
    """A client with a console token of `staff`."""
    return Api(bearer_tokens.open_session(staff).token)
