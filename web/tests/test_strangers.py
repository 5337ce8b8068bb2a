"""Strangers: a flood of unknown callers delays neither known callers nor other strangers, and is limited."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.test.utils import CaptureQueriesContext

from gateway.api import authentication as known_credentials
from gateway.api.authentication import Caller
from gateway.api.errors import Unauthorized
from gateway.api.limits import LargeBodyMemory
from gateway.clock import now
from gateway.database import pool
from gateway.valkey.connection import valkey
from messaging.tests.incoming import signature_of
from tenants.credentials import api_keys, bearer_tokens, key_cache
from tenants.models import ApiKey, Tenant, User
from tests.fixtures import Api, assert_error, wait_until
from tests.front import Front
from web import admission, strangers
from web.request import AsgiMessage, AsgiScope, ClientGone, Request
from web.tests.client import Answer, FrontClient
from web.tests.test_django_threads import SESSION, Views, address, connect, served, talk, views, waiting

__all__ = ["address", "served", "views"]

PATIENCE = 30


def unknown(number: int) -> str:
    """A token that looks like a key but was never created."""
    return f"wb_live_{number:040}"


def users(of: str | None = None) -> int:
    """How many requests of strangers run or wait, of one address or of all."""
    turns = dict(strangers.strangers._turns.of)
    return sum(each.users for address, each in turns.items() if of in (None, address))


class LookUps:
    """Replaces the look-up of callers: look-ups of unknown keys wait until a test releases them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._granted = threading.Semaphore(0)

    def __call__(self, token: str, chosen: str | None) -> Caller | None:
        if token.startswith("wb_live_000"):
            self.begun.append(token)
            assert self._granted.acquire(timeout=PATIENCE)
        return bearer_tokens.caller_for(token, chosen)

    def grant(self, count: int) -> None:
        self._granted.release(count)


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[LookUps]:
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    held = LookUps()
    monkeypatch.setattr(admission, "caller_for", held)
    yield held
    held.grant(1_000)
    wait_until(lambda: users() == 0, "the strangers have their answers")


@pytest.fixture
def call(front: FrontClient) -> Iterator[Callable[[str, str], Future[Answer]]]:
    """Make calls with a key from an address, in parallel to the test."""
    with ThreadPoolExecutor(100) as callers:

        def begin(token: str, of: str) -> Future[Answer]:
            headers = {"Authorization": f"Bearer {token}", "X_Forwarded_For": of}
            return callers.submit(lambda: front.ask("POST", "/v1/messages", b"{}", **headers))

        yield begin


Call = Callable[[str, str], "Future[Answer]"]


@pytest.mark.django_db(transaction=True)
class TestKeys:
    def test_unknown_keys_leave_known_ones_their_threads(
        self, call: Call, look_ups: LookUps, key: api_keys.NewKey
    ) -> None:
        assert_refused(call(key.key, "198.51.100.1"), 400, "invalid_request")
        flood = [call(unknown(number), f"198.51.100.{number % 3}") for number in range(12)]
        wait_until(lambda: users() == 12, "all have arrived")
        # This caller was found before but is no longer cached, so the call needs a look-up, as in the flood.
        key_cache.clear_process_cache()
        assert_refused(call(key.key, "198.51.100.1"), 400, "invalid_request")
        assert not any(each.done() for each in flood)
        look_ups.grant(12)
        for each in flood:
            assert_refused(each, 401, "unauthorized")

    def test_a_flood_of_one_address_keeps_no_other_waiting(self, call: Call, look_ups: LookUps) -> None:
        flood = [call(unknown(number), "198.51.100.1") for number in range(50)]
        wait_until(lambda: users("198.51.100.1") == 50, "all have arrived")
        other = call(unknown(100), "203.0.113.7")
        wait_until(
            lambda: unknown(100) in look_ups.begun, "the other's look-up begins though no other has ended"
        )
        assert len(look_ups.begun) == strangers.AT_ONCE + 1
        look_ups.grant(51)
        for each in (other, *flood):
            assert_refused(each, 401, "unauthorized")

    def test_beyond_what_may_wait_of_an_address_it_is_429(
        self, call: Call, look_ups: LookUps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(strangers, "MOST_WAITING", 2)
        monkeypatch.setattr(strangers, "REFUSED_SECONDS", 0.3)
        most = strangers.AT_ONCE + 2
        flood = [call(unknown(number), "198.51.100.1") for number in range(most)]
        wait_until(lambda: users() == most, "all have arrived")
        asked_at = time.monotonic()
        refused = call(unknown(50), "198.51.100.1")
        assert_refused(refused, 429, "rate_limited")
        assert time.monotonic() - asked_at >= 0.3, "who asks again at once is slowed down"
        assert refused.result()["Retry-After"] == "1"
        other = call(unknown(51), "203.0.113.7")
        look_ups.grant(100)
        for each in (*flood, other):
            assert_refused(each, 401, "unauthorized")
        assert_refused(call(unknown(52), "198.51.100.1"), 401, "unauthorized")

    def test_a_refused_key_keeps_its_turn_for_a_while(
        self, call: Call, look_ups: LookUps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(strangers, "FAILED_SECONDS", 0.3)
        look_ups.grant(100)
        began = time.monotonic()
        for each in [call(unknown(number), "198.51.100.1") for number in range(3 * strangers.AT_ONCE)]:
            assert_refused(each, 401, "unauthorized")
        assert time.monotonic() - began >= 3 * 0.3

    @pytest.mark.parametrize("end", [Unauthorized(), ClientGone()])
    def test_a_client_that_hangs_up_keeps_its_turn_as_long(
        self, monkeypatch: pytest.MonkeyPatch, end: Exception
    ) -> None:
        monkeypatch.setattr(strangers, "FAILED_SECONDS", 0.3)

        async def ask() -> None:
            async with strangers.Strangers().turn(request({})):
                raise end

        began = time.monotonic()
        with pytest.raises(type(end)):
            asyncio.run(ask())
        assert time.monotonic() - began >= 0.3

    def test_an_address_that_waits_for_nothing_is_not_kept(self, call: Call, look_ups: LookUps) -> None:
        look_ups.grant(20)
        for each in [call(unknown(number), f"198.51.100.{number}") for number in range(20)]:
            assert_refused(each, 401, "unauthorized")
        wait_until(lambda: strangers.strangers._turns.of == {}, "nothing is kept of an address")

    def test_a_key_that_was_tried_before_it_was_made_works_at_once(
        self, call: Call, tenant: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenants.credentials.api_keys.secrets.choice", lambda characters: "k")
        token = "wb_live_" + "k" * 40
        assert_refused(call(token, "198.51.100.1"), 401, "unauthorized")
        assert api_keys.create(name="late", environment="live", tenant=tenant).key == token
        assert_refused(call(token, "198.51.100.1"), 400, "invalid_request")


@pytest.mark.django_db(transaction=True)
class TestNotifications:
    @pytest.fixture(autouse=True)
    def _behind_a_proxy(self, settings: Any) -> Iterator[None]:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
        yield
        wait_until(lambda: users() == 0, "the strangers have their answers")
        strangers.strangers._suspects.clear()

    @staticmethod
    def _begun(address: tuple[str, int], of: str) -> socket.socket:
        """A notification whose body does not arrive."""
        head = f"POST /upstream/webhook HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {of}\r\nContent-Length: 100\r\n\r\n"
        return connect(address, head.encode())

    @staticmethod
    def _notify(front: FrontClient, of: str, *, secret: str) -> int:
        body = b'{"object":"whatsapp_business_account","entry":[]}'
        signed = {"X_Hub_Signature_256": signature_of(body, secret), "X_Forwarded_For": of}
        return front.ask("POST", "/upstream/webhook", body, **signed).status_code

    def test_an_address_that_sent_what_nobody_signed_takes_turns(self, front: FrontClient) -> None:
        stranger, most = "198.51.100.9", strangers.AT_ONCE + 20
        assert self._notify(front, stranger, secret="of nobody") == 401
        with contextlib.ExitStack() as stack:
            for _ in range(most):
                stack.enter_context(self._begun(front.address, stranger))
            wait_until(lambda: users(stranger) == most, "they wait")
            assert self._notify(front, "203.0.113.7", secret=settings.META_APP_SECRET) == 200
            assert users() == most
        assert self._notify(front, stranger, secret=settings.META_APP_SECRET) == 200

    @pytest.mark.parametrize("goes", [True, False])
    def test_an_address_whose_body_does_not_come_takes_turns(
        self, front: FrontClient, monkeypatch: pytest.MonkeyPatch, goes: bool
    ) -> None:
        stranger = "198.51.100.9"
        monkeypatch.setattr("web.request.BODY_GRACE_SECONDS", 30.0 if goes else 0.05)
        with self._begun(front.address, stranger) as begun:
            if not goes:
                assert begun.recv(64).startswith(b"HTTP/1.1 408 ")
        wait_until(lambda: stranger in strangers.strangers._suspects, "it is noted")
        with self._begun(front.address, stranger):
            wait_until(lambda: users(stranger) == 1, "it takes a turn")

    def test_an_address_that_met_full_memory_takes_no_turns(
        self, front: FrontClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("web.request.large_bodies", LargeBodyMemory(0))
        large, sender = b" " * 70_000, "198.51.100.9"
        assert front.ask("POST", "/upstream/webhook", large, X_Forwarded_For=sender).status_code == 503
        assert sender not in strangers.strangers._suspects

    def test_it_does_so_for_a_while(self, front: FrontClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(strangers, "SUSPECT_SECONDS", -1.0)
        assert self._notify(front, "198.51.100.9", secret="of nobody") == 401
        assert self._notify(front, "198.51.100.9", secret=settings.META_APP_SECRET) == 200
        assert "198.51.100.9" not in strangers.strangers._suspects


def assert_refused(call: "Future[Answer]", status: int, code: str) -> None:
    assert_error(call.result(PATIENCE), status, code)  # type: ignore[arg-type]


@pytest.mark.django_db
class TestAbsent:
    def test_an_unknown_key_is_looked_up_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def queries() -> int:
            with (
                CaptureQueriesContext(connection) as seen,
                pytest.raises(Unauthorized, match="This API key is unknown"),
            ):
                admission._identified(unknown(1), None)
            return len(seen.captured_queries)

        assert queries() == 1
        assert queries() == 0
        monkeypatch.setattr(key_cache, "ABSENT_SECONDS", -1.0)
        key_cache.clear_process_cache()
        queries()
        assert queries() > 0, "it is remembered for a while only"

    def test_a_revoked_key_is_reported_as_revoked_each_time(self, key: api_keys.NewKey, api: Api) -> None:
        api_keys.revoke(keys=ApiKey.objects.all(), key_id=key.row.id)
        key_cache.clear_process_cache()
        for _ in range(2):
            with pytest.raises(Unauthorized, match="revoked"):
                admission._identified(key.key, None)


@pytest.fixture
def busy(
    views: Views, served: Front, settings: Any
) -> Iterator[Callable[[Callable[[int], str]], tuple[str, int]]]:
    """Start 30 requests of strangers that wait until the test ends. Each request has a different header."""
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    begun, goes_on = threading.Semaphore(0), threading.Event()
    views.at["/waits"] = waiting(begun, goes_on)
    with contextlib.ExitStack() as stack:
        flood: list[socket.socket] = []

        def begin(header: Callable[[int], str]) -> tuple[str, int]:
            address = served.start()
            flood.extend(
                stack.enter_context(connect(address, get("/waits", header(each)))) for each in range(30)
            )
            wait_until(lambda: users() == 30, "all have arrived")
            return address

        yield begin
        goes_on.set()
        for client in flood:
            assert client.recv(64).startswith(b"HTTP/1.1 200 ")


Busy = Callable[[Callable[[int], str]], tuple[str, int]]


class TestDjango:
    @pytest.mark.django_db
    @pytest.mark.parametrize("by", ["key", "session"])
    def test_strangers_leave_known_callers_their_threads(
        self, busy: Busy, key: api_keys.NewKey, settings: Any, by: str
    ) -> None:
        cookie = settings.SESSION_COOKIE_NAME
        # Invalid values that look like a credential do not make a stranger known.
        address = busy(
            lambda each: (
                f"X-Forwarded-For: 198.51.100.{each}\r\nCookie: {cookie}=forged{each}"
                if each % 2
                else f"X-Forwarded-For: 198.51.100.{each}\r\nAuthorization: Bearer {unknown(each)}"
            )
        )
        key_cache.key_by_hash(api_keys.hash_of(key.key))
        known = {"key": f"Authorization: bearer {key.key}", "session": f"Cookie: theme=dark; {cookie}=any"}[
            by
        ]
        for _ in range(10):
            assert talk(address, get("/", known)).endswith(b"here")

    def test_one_address_takes_a_share_of_the_threads_of_strangers(self, busy: Busy) -> None:
        address = busy(lambda each: "X-Forwarded-For: 198.51.100.1")
        assert talk(address, get("/", "X-Forwarded-For: 203.0.113.7")).endswith(b"here")

    def test_a_refused_request_keeps_its_turn_for_a_while(
        self, views: Views, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(strangers, "FAILED_SECONDS", 0.2)
        views.at["/answers"] = lambda environ: HttpResponse(status=int(environ["QUERY_STRING"]))
        for status in (401, 403, 429):
            began = time.monotonic()
            sent = get(f"/answers?{status}", "X: y")
            assert talk(address, sent).startswith(b"HTTP/1.1 %d " % status)
            assert time.monotonic() - began >= 0.2

    def test_only_strangers_borrow_from_their_pool(self, views: Views, address: tuple[str, int]) -> None:
        def pools(environ: dict[str, Any]) -> HttpResponseBase:
            own = connections["default"]._connection_pools is pool._strangers_pools  # type: ignore[attr-defined]
            return HttpResponse(b"of strangers" if own else b"of callers")

        views.at["/pools"] = pools
        assert talk(address, get("/pools", "X: y")).endswith(b"of strangers")
        assert talk(address, get("/pools", SESSION)).endswith(b"of callers")


def get(path: str, header: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.django_db
class TestKnownKeys:
    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
    def test_a_key_is_known_once_it_was_found(self, key: api_keys.NewKey, scheme: str) -> None:
        headers = {"authorization": f"{scheme} {key.key}"}
        assert not strangers.is_known(scope(headers))
        key_cache.key_by_hash(api_keys.hash_of(key.key))
        assert strangers.is_known(scope(headers))

    def test_a_key_that_is_read_again_beside_its_calls_stays_known(self, key: api_keys.NewKey) -> None:
        key_cache.remember_many({api_keys.hash_of(key.key)})
        assert strangers.is_known(scope(bearer(key.key)))

    def test_a_revoked_key_is_unknown_at_once(
        self, key: api_keys.NewKey, django_capture_on_commit_callbacks: Any
    ) -> None:
        key_cache.key_by_hash(api_keys.hash_of(key.key))
        with django_capture_on_commit_callbacks(execute=True):
            api_keys.revoke(keys=ApiKey.objects.all(), key_id=key.row.id)
        assert not strangers.is_known(scope(bearer(key.key)))
        key_cache.key_by_hash(api_keys.hash_of(key.key))
        assert not strangers.is_known(scope(bearer(key.key)))

    def test_the_end_of_a_key_is_received_from_other_processes(self, key: api_keys.NewKey) -> None:
        key_hash = api_keys.hash_of(key.key)
        key_cache.key_by_hash(key_hash)
        key_cache._invalidate(f"key:{key_hash}")
        assert not strangers.is_known(scope(bearer(key.key)))

    def test_an_end_without_a_notification_is_found_at_the_next_use(self, key: api_keys.NewKey) -> None:
        key_hash = api_keys.hash_of(key.key)
        key_cache.key_by_hash(key_hash)
        ApiKey.objects.update(revoked_at=now())
        valkey().flushdb()
        key_cache.clear_process_cache()
        assert strangers.is_known(scope(bearer(key.key)))
        key_cache.key_by_hash(key_hash)
        assert not strangers.is_known(scope(bearer(key.key)))

    @pytest.mark.parametrize("where", ["x-api-key", "query", "OAuth"])
    def test_at_graph_paths_a_key_is_known_wherever_it_stands(self, key: api_keys.NewKey, where: str) -> None:
        key_cache.key_by_hash(api_keys.hash_of(key.key))
        headers = {"x-api-key": {"x-api-key": key.key}, "OAuth": {"authorization": f"OAuth {key.key}"}}.get(
            where, {}
        )
        query = f"access_token={key.key}" if where == "query" else ""
        assert strangers.is_known(scope(headers, path="/v25.0/1234567/phone_numbers", query=query))
        assert not strangers.is_known(scope(headers, path="/v1/numbers", query=query))

    def test_a_console_token_is_known_until_it_ends(self, tenant: Tenant) -> None:
        person = User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)
        token = bearer_tokens.open_session(person).token
        api = Api(token)
        assert not strangers.is_known(scope(bearer(token)))
        assert api.get("/v1/tenant").status_code == 200
        assert strangers.is_known(scope(bearer(token)))
        assert api.delete("/v1/console/sessions/current").status_code == 204
        assert not strangers.is_known(scope(bearer(token)))

    def test_what_was_verified_long_ago_is_not_known(
        self, key: api_keys.NewKey, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(known_credentials, "KNOWN_SECONDS", -1.0)
        key_cache.key_by_hash(api_keys.hash_of(key.key))
        assert not strangers.is_known(scope(bearer(key.key)))

    def test_beyond_what_a_process_keeps_the_one_verified_longest_ago_goes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(known_credentials, "_known", {})
        monkeypatch.setattr(known_credentials, "MOST_KNOWN", 2)
        for each in ("a", "b", "a", "c"):
            known_credentials.remember_credential(each)
        assert [known_credentials.is_known(each) for each in ("a", "b", "c")] == [True, False, True]


@pytest.mark.django_db
class TestKnownSessions:
    @pytest.fixture
    def person(self, tenant: Tenant) -> User:
        return User.objects.create_user("asha@traders.example", "a long enough password", tenant=tenant)

    def test_a_cookie_that_nobody_verified_is_a_strangers(self, client: Client) -> None:
        client.cookies[settings.SESSION_COOKIE_NAME] = "forged"
        assert not is_known(client)
        assert client.get("/console").status_code == 302
        assert not is_known(client)

    def test_a_session_is_known_from_the_log_in_to_the_log_out(self, client: Client, person: User) -> None:
        fields = {"login": person.email, "password": "a long enough password"}
        assert client.post("/login", fields).status_code == 302
        assert is_known(client)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        assert client.post("/logout").status_code == 302
        client.cookies[settings.SESSION_COOKIE_NAME] = cookie
        assert not is_known(client)

    def test_a_session_of_before_is_known_with_its_first_page(self, client: Client, person: User) -> None:
        client.force_login(person)
        assert not is_known(client)
        assert client.get("/console").status_code == 200
        assert is_known(client)

    def test_sessions_of_a_business_share_its_turns(self, person: User, other_tenant: Tenant) -> None:
        colleague = User.objects.create_user(
            "ravi@traders.example", "a long enough password", tenant=person.tenant
        )
        other = User.objects.create_user("asha@other.example", "a long enough password", tenant=other_tenant)
        staff = User.objects.create_user("staff@service.example", "a long enough password", is_staff=True)
        owners = []
        for each in (person, person, colleague, other, staff):
            client = Client()
            client.force_login(each)
            assert owner(client) is None
            client.get("/you")
            owners.append(owner(client))
        assert owners[0] is not None
        assert owners[0] == owners[1] == owners[2]
        assert len({*owners}) == 3
        assert None not in owners

    def test_a_session_has_its_turns_from_the_log_in(self, client: Client, person: User) -> None:
        client.post("/login", {"login": person.email, "password": "a long enough password"})
        assert owner(client) == str(person.tenant_id)

    @pytest.mark.parametrize("change", [{"is_active": False}, {"password": "another"}])
    def test_a_session_that_ended_elsewhere_is_found_at_its_next_page(
        self, client: Client, person: User, change: dict[str, Any]
    ) -> None:
        client.force_login(person)
        client.get("/console")
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        User.objects.filter(pk=person.pk).update(**change)
        assert client.get("/console").status_code == 302
        client.cookies[settings.SESSION_COOKIE_NAME] = cookie
        assert not is_known(client)

    def test_a_session_without_a_person_is_not_known(self, client: Client) -> None:
        session = client.session
        session["next"] = "/console"
        session.save()
        client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key or ""
        client.get("/login")
        assert not is_known(client)

    def test_a_wrong_key_beside_a_known_session_is_a_strangers(self) -> None:
        known_credentials.remember_credential(known_credentials.credential_digest("any"))
        cookie = {"cookie": f"a=b; {settings.SESSION_COOKIE_NAME}=any"}
        assert strangers.is_known(scope(cookie))
        assert not strangers.is_known(scope({**cookie, **bearer(unknown(1))}))
        assert not strangers.is_known(scope({"cookie": "a=any"}))
        assert not strangers.is_known(scope({}))


def is_known(client: Client) -> bool:
    """Whether the current session of a browser is a known credential."""
    return strangers.is_known(scope(cookie_of(client)))


def owner(client: Client) -> str | None:
    """Whose turns the requests of a browser take."""
    return strangers.owner_of_session(scope(cookie_of(client)))


def cookie_of(client: Client) -> dict[str, str]:
    return {"cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"}


class TestAddress:
    def test_an_address_from_no_trusted_proxy_does_not_count(self, settings: Any) -> None:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 0
        assert strangers.network_of(request({"x-forwarded-for": "198.51.100.1"})) == "192.0.2.1"

    @pytest.mark.parametrize(
        ("proxies", "header", "address"),
        [
            (1, "198.51.100.1", "198.51.100.1"),
            (1, "10.9.9.9, 198.51.100.1", "198.51.100.1"),
            (2, "10.9.9.9, 198.51.100.1, 203.0.113.7", "198.51.100.1"),
            (2, "203.0.113.7", "203.0.113.7"),
            (1, "", "192.0.2.1"),
            (1, "198.51.100.1,", "192.0.2.1"),
            (1, "::ffff:198.51.100.1", "198.51.100.1"),
            (1, "::FFFF:c633:6401", "198.51.100.1"),
        ],
    )
    def test_only_the_address_from_trusted_proxies_counts(
        self, settings: Any, proxies: int, header: str, address: str
    ) -> None:
        """Earlier entries of the header are claims of the client itself."""
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = proxies
        assert strangers.network_of(request({"x-forwarded-for": header})) == address

    def test_the_network_of_an_ipv6_address_is_one_caller(self, settings: Any) -> None:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
        networks = {
            strangers.network_of(request({"x-forwarded-for": header}))
            for header in ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:0DB8:0001:0002::7")
        }
        assert networks == {"2001:db8:1:2::/64"}
        assert strangers.network_of(request({"x-forwarded-for": "2001:db8:1:3::1"})) not in networks

    @pytest.mark.parametrize(
        ("seconds", "address", "is_suspect"),
        [
            (60.0, "198.51.100.9", True),
            (60.0, "198.51.100.8", False),
            (0.0, "198.51.100.9", False),
            (60.0, "2001:db8:1:2::9", True),
            (60.0, "2001:db8:1:3::9", False),
            (60.0, "::ffff:198.51.100.9", True),
            (60.0, "::ffff:198.51.100.8", False),
        ],
    )
    def test_an_address_is_suspect_for_a_while_and_no_other_is(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, address: str, is_suspect: bool
    ) -> None:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 0
        monkeypatch.setattr(strangers, "SUSPECT_SECONDS", seconds)

        async def suspected() -> list[bool]:
            known = strangers.Strangers()
            for invalid in ("198.51.100.9", "2001:db8:1:2::1"):
                known.suspect(request({}, client=(invalid, 1)))
            return [known.is_suspect(request({}, client=(address, port))) for port in (2, 3)]

        assert asyncio.run(suspected()) == [is_suspect] * 2

    def test_the_list_of_suspect_addresses_is_bounded(
        self, settings: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 0
        monkeypatch.setattr(strangers, "MOST_SUSPECTS", 2)

        async def suspected() -> list[bool]:
            known = strangers.Strangers()
            requests = [request({}, client=(f"198.51.100.{each}", 1)) for each in range(3)]
            for each in requests:
                known.suspect(each)
            return [known.is_suspect(each) for each in requests]

        assert asyncio.run(suspected()) == [False, False, True]

    def test_a_client_without_an_address_is_one_caller(self, settings: Any) -> None:
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = 0
        assert strangers.network_of(request({}, client=None)) == ""


def request(headers: dict[str, str], *, client: tuple[str, int] | None = ("192.0.2.1", 4711)) -> Request:
    async def receive() -> AsgiMessage:
        return {"type": "http.disconnect"}

    return Request(scope(headers, client=client), receive)


def scope(
    headers: dict[str, str],
    *,
    client: tuple[str, int] | None = ("192.0.2.1", 4711),
    path: str = "/",
    query: str = "",
) -> AsgiScope:
    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": lines,
        "client": client,
    }
