"""Every route with every kind of caller (specification 5), from the table in `authorisation.py`."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from pytest_django import Settings

from gateway.api.authentication import Environment
from gateway.roles import LIVE_SCOPES, KeyScope
from tenants import platform_apps
from tenants.credentials import api_keys, key_cache
from tenants.models import Tenant
from tests.api_contract.authorisation import CONNECTING, ROWS, Ids, Route, Row, World, registered_routes
from tests.api_contract.credentials import (
    FORBIDDEN,
    NOT_FOUND,
    Credential,
    Credentials,
    Refusal,
    declared_by,
    details_of,
    lacks,
    refusal,
    turns,
)
from tests.fixtures import assert_error, shared_rows
from web import routes

ROUTES = registered_routes()
WITH_ROW = [route for route in ROUTES if route.name in ROWS]


def is_answered_by_listener(route: Route) -> bool:
    return routes.match_of(route.method, route.path) is not None


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    names = {route.name for route in ROUTES}
    assert names - set(ROWS) == set(), "add a line for each to ROWS in tests/api_contract/authorisation.py"
    assert set(ROWS) - names == set(), "these routes no longer exist: remove their lines"


def test_every_route_of_a_tenant_declares_its_scope() -> None:
    """A view declares `scope`, or `action_scopes` for single actions. A route without either admits nobody."""
    scopes: dict[str, KeyScope | None] = {}
    for route in ROUTES:
        if route.kind == "tenant":
            try:
                scopes[route.name] = route.scope
            except AttributeError:
                pytest.fail(f"{route.name}: its view declares no scope")
    assert {name for name, scope in scopes.items() if scope is None} == {"GET /v1/tenant"}


def test_a_view_that_serves_limited_keys_serves_them_in_every_action() -> None:
    """A key that is limited to numbers can cancel what it has made. But it connects no numbers."""
    limited = {route.view for route in registered_routes() if route.keeps_to_numbers}
    refused = [route for route in registered_routes() if route.view in limited and not route.keeps_to_numbers]
    assert {route.name for route in refused} == CONNECTING


def test_every_route_that_the_listener_answers_has_a_row() -> None:
    """`registered_routes` finds only the views behind Django's URLs."""
    answered = {f"{method} {path}" for path, route in routes.ROUTES.items() for method in route.handlers}
    assert {name for name in answered if " /v1/" in name} - set(ROWS) == set()


def test_every_path_with_an_object_in_it_says_how_to_make_one() -> None:
    assert [route.name for route in ROUTES if "{" in route.path and not ROWS.get(route.name, Row()).ids] == []


def made_credentials() -> Credentials:
    app = platform_apps.create_app(name="Shop platform")
    return Credentials(
        World(
            tenant=Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE),
            app=app,
            app_tenant=Tenant.objects.create(name="Of the app", app=app, status=Tenant.Status.ACTIVE),
        )
    )


@pytest.fixture(scope="class")
def credentials(django_db_setup: None, django_db_blocker: Any) -> Iterator[Credentials]:
    """The credentials for the tests of all routes. Creating them takes longer than the calls."""
    with django_db_blocker.unblock(), shared_rows():
        yield made_credentials()


@pytest.fixture(autouse=True)
def _others_are_away(settings: Settings) -> None:
    """Make Meta and the payment provider unreachable for calls that are admitted."""
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = settings.RAZORPAY_BASE_URL = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _billing_is_on(settings: Settings) -> None:
    """Turn billing on, because otherwise every permitted caller gets the same 503."""
    settings.BILLING_ENABLED = True


class Case:
    """Calls a route with credentials, and checks the answers."""

    def __init__(self, route: Route, credentials: Credentials, environment: Environment = "live") -> None:
        self.route, self.row, self.environment = route, ROWS[route.name], environment
        self.world = replace(credentials.world, environment=environment)
        self._ids: Ids | None = None

    def expected(self, credential: Credential) -> Refusal | None:
        """Return the rejection of a credential: by the declarations of the route, or because it finds no object."""
        rejected = refusal(credential, self.route)
        if rejected is None and self.row.ids and not self.row.is_shared_name and not self._finds(credential):
            return NOT_FOUND
        return rejected

    def _finds(self, credential: Credential) -> bool:
        if self.route.kind == "app":
            return credential.app == self.world.app and credential.environment == self.environment
        if self.route.kind != "tenant":
            return True
        tenant, environment = credential.world
        is_there = environment == self.environment or (environment == "live" and self.row.live_finds_test)
        return tenant == self.world.tenant and is_there and not credential.is_limited

    def check(self, credential: Credential) -> None:
        """Check the answer to a credential."""
        expected = self.expected(credential)
        answer = self._call(credential)
        content = b"".join(answer)
        if expected is not None:
            error = assert_error(answer, *expected)
            scope = self.route.scope if self.route.kind == "tenant" else None
            is_of_scope = expected == FORBIDDEN and credential.kind == "tenant_key" and scope is not None
            if is_of_scope and lacks(credential, scope):
                assert error["details"] == details_of(credential, scope)
            return
        if self.route.method != "GET":
            self._ids = None
        assert answer.status_code not in {401, 403, 500}, content
        if self.row.ids:
            assert b'"not_found"' not in content, "the row must create an object that its owner finds"

    def _call(self, credential: Credential) -> Any:
        # An earlier admitted change may have deleted the object.
        if self._ids is None:
            self._ids = self.row.ids(self.world) if self.row.ids else {}
        body = None if self.route.method == "GET" else dict(self.row.body)
        return credential.api.request(self.route.method, self.route.path.format(**self._ids), body)


@cache
def turns_of_routes() -> dict[str, tuple[int, int]]:
    """Return for each route its turn with similar credentials (see `turns`)."""
    of_rows = {name: (bool(row.ids), row.is_shared_name, row.live_finds_test) for name, row in ROWS.items()}
    return turns({route.name: (*declared_by(route), *of_rows[route.name]) for route in WITH_ROW})


def check(route: Route, credentials: Credentials) -> None:
    """Check the answers to the credentials of a route.

    If the route has an object, the tenant's credentials that the route admits are also tried with an object of the
    sandbox.
    """
    row, wrong, turn = ROWS[route.name], [], turns_of_routes()[route.name]
    in_live = Case(route, credentials)
    cases = [(in_live, each) for each in credentials.of_route(route, in_live.expected, turn)]
    has_twin = row.ids and route.kind == "tenant" and not row.is_known_to_meta
    if has_twin and route.scope not in LIVE_SCOPES:
        in_sandbox = Case(route, credentials, "test")
        cases += [
            (in_sandbox, each)
            for each in credentials.of_route(route, in_sandbox.expected, turn)
            if each.tenant == in_sandbox.world.tenant and refusal(each, route) is None
        ]
    # Otherwise each key and its tenant would be read by several statements.
    tokens = [credential.api.headers.get("Authorization", "") for _, credential in cases]
    key_cache.remember_many({api_keys.hash_of(token.removeprefix("Bearer ")) for token in tokens})
    for case, credential in cases:
        try:
            case.check(credential)
        except (AssertionError, ValueError) as error:
            asked = f"{credential.name}, {case.environment} object, expected {case.expected(credential)}"
            wrong.append(f"{asked}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.django_db
class TestEachRouteOfDjango:
    @pytest.mark.parametrize(
        "route",
        [route for route in WITH_ROW if not is_answered_by_listener(route)],
        ids=lambda route: route.name,
    )
    def test_each_credential_gets_what_the_route_declares(
        self, route: Route, credentials: Credentials
    ) -> None:
        check(route, credentials)


@pytest.mark.django_db(transaction=True)
def test_each_credential_at_the_listener_gets_what_the_route_declares() -> None:
    credentials = made_credentials()
    answered = [route for route in WITH_ROW if is_answered_by_listener(route)]
    assert answered
    for route in answered:
        check(route, credentials)
