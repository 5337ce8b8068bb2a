"""Every route × every kind of caller (specification 5), from the table in `authorisation.py`."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from console.tests.pages import CHANGES, READS
from gateway.api.authentication import TENANT_HEADER
from gateway.roles import ALL_SCOPES, LIVE_SCOPES, NUMBER_SCOPES, KeyScope
from tenants import lifecycle
from tenants.credentials import api_keys, authentication, key_cache
from tenants.models import ApiKey, Tenant, User
from tests.api_contract.authorisation import ROWS, Route, Row, World, registered_routes
from tests.fixtures import Api, assert_error, shared_rows
from web import routes

ROUTES = registered_routes()
WITH_ROW = [route for route in ROUTES if route.name in ROWS]


def is_answered_by_listener(route: Route) -> bool:
    return routes.handler_of(route.method, route.path) is not None


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    names = {route.name for route in ROUTES}
    assert names - set(ROWS) == set(), "add a line for each to ROWS in tests/api_contract/authorisation.py"
    assert set(ROWS) - names == set(), "these routes are gone: remove their lines"


def test_every_route_of_a_tenant_declares_its_scope() -> None:
    """`scope` of a view, or `action_scopes` for one of its actions. A route without either answers nobody."""
    scopes: dict[str, KeyScope | None] = {}
    for route in ROUTES:
        if route.kind == "tenant":
            try:
                scopes[route.name] = route.scope
            except AttributeError:
                pytest.fail(f"{route.name}: its view declares no scope")
    assert {name for name, scope in scopes.items() if scope is None} == {"GET /v1/tenant"}


def test_every_route_that_the_listener_answers_has_a_row() -> None:
    """Only views behind Django's URLs are found automatically."""
    answered = {f"{method} {path}" for path, route in routes.ROUTES.items() for method in route.handlers}
    assert {name for name in answered if " /v1/" in name} - set(ROWS) == set()


def test_every_path_with_an_object_in_it_says_how_to_make_one() -> None:
    assert [route.name for route in ROUTES if "{" in route.path and not ROWS.get(route.name, Row()).ids] == []


def made_world() -> World:
    app = lifecycle.create_app(name="Shop platform")
    return World(
        tenant=Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE),
        app=app,
        app_tenant=Tenant.objects.create(name="Of the app", app=app, status=Tenant.Status.ACTIVE),
    )


@pytest.fixture(scope="class")
def callers(django_db_setup: None, django_db_blocker: Any) -> Iterator["Callers"]:
    """One caller of each kind for all routes, because creating them takes longer than their calls."""
    with django_db_blocker.unblock(), shared_rows():
        yield Callers(made_world())


@pytest.fixture(autouse=True)
def _others_are_away(settings: Settings) -> None:
    """Meta and the payment provider are unreachable for calls that get that far."""
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = settings.RAZORPAY_BASE_URL = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _billing_is_on(settings: Settings) -> None:
    """While it is off, every permitted caller gets the same 503."""
    settings.BILLING_ENABLED = True


class Callers:
    """One caller of each kind."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nobody = Api(None)
        self.bad_key = Api("wb_live_" + "x" * 40)
        self.no_token = Api("wbc_" + "x" * 43)
        self.owner = self.with_key(world.tenant)
        self.other = self.with_key(Tenant.objects.create(name="Other", status=Tenant.Status.ACTIVE))
        self.wrong_header = self.with_key(world.tenant, **{TENANT_HEADER: str(world.app_tenant.id)})
        app_key = lifecycle.create_app_key(app_id=world.app.id, name="k", environment="live").key
        self.app = Api(app_key)
        self.app_for_own = Api(app_key, **{TENANT_HEADER: str(world.app_tenant.id)})
        self.app_for_foreign = Api(app_key, **{TENANT_HEADER: str(world.tenant.id)})
        another = lifecycle.create_app(name="Another platform")
        self.other_app = Api(lifecycle.create_app_key(app_id=another.id, name="k", environment="live").key)
        self.person = Api(
            authentication.open_session(
                User.objects.create_user("a@traders.example", "pw", tenant=world.tenant)
            ).token
        )
        self.by_role = {
            role: Api(
                authentication.open_session(
                    User.objects.create_user(f"{role}@traders.example", "pw", tenant=world.tenant, role=role)
                ).token
            )
            for role in READS
        }
        self.staff = Api(
            authentication.open_session(User.objects.create_superuser("s@service.example", "pw")).token
        )
        self.by_status = {
            status: self.with_key(Tenant.objects.create(name=status, status=status))
            for status in ("pending_approval", "rejected", "suspended")
        }

        self.by_scope = {
            scope: self.with_key(world.tenant, options={"scopes": [scope]}) for scope in KeyScope
        }
        self.test_by_scope = {
            scope: self.with_key(world.tenant, environment="test", options={"scopes": [scope]})
            for scope in ALL_SCOPES - LIVE_SCOPES
        }
        # In the form of a test key from before scopes, which has all of them.
        former = api_keys.create(name="former", environment="test", tenant=world.tenant)
        ApiKey.objects.filter(pk=former.row.pk).update(scopes=sorted(ALL_SCOPES))
        key_cache.write_key(ApiKey.objects.get(pk=former.row.pk))
        self.test_with_all = Api(former.key)
        self.limited = self.with_key(world.tenant, options={"phone_number_ids": ["100"]})

    def with_key(
        self,
        tenant: Tenant,
        *,
        environment: str = "live",
        options: dict[str, Any] | None = None,
        **headers: str,
    ) -> Api:
        new = api_keys.create(name="server", environment=environment, tenant=tenant, **(options or {}))
        return Api(new.key, **headers)


class Case:
    """One route with one caller."""

    def __init__(self, route: Route, world: World) -> None:
        self.route, self.world = route, world
        self.row: Row = ROWS[route.name]

    def call(self, api: Api) -> Any:
        made = self.row.ids(self.world) if self.row.ids else {}
        body = None if self.route.method == "GET" else dict(self.row.body)
        return api.request(self.route.method, self.route.path.format(**made), body)

    def refuses(self, api: Api, status: int, code: str) -> None:
        answer = self.call(api)
        assert_error(answer, status, code)
        self.details = answer.json()["error"]["details"]

    def lets_in(self, api: Api) -> None:
        answer = self.call(api)
        content = b"".join(answer)
        assert answer.status_code not in {401, 403, 500}, content
        if self.row.ids:
            assert b'"not_found"' not in content, "the row must make an object that its owner finds"


def check_open(case: Case, callers: Callers) -> None:
    for api in (callers.nobody, callers.owner, callers.staff):
        case.lets_in(api)


def check_tenant(case: Case, callers: Callers) -> None:
    for api in (callers.nobody, callers.bad_key, callers.no_token):
        case.refuses(api, 401, "unauthorized")
    case.refuses(callers.app, 400, "invalid_request")
    case.refuses(callers.app_for_foreign, 404, "not_found")
    case.refuses(callers.wrong_header, 403, "forbidden")
    case.refuses(callers.staff, 403, "forbidden")
    for status, api in callers.by_status.items():
        if case.route.open_to_any_status:
            case.lets_in(api)
        else:
            case.refuses(api, 403, "tenant_suspended" if status == "suspended" else "tenant_not_approved")
    for api in (callers.other, callers.app_for_own):
        if case.row.ids and not case.row.is_shared_name:
            case.refuses(api, 404, "not_found")
        else:
            case.lets_in(api)
    case.lets_in(callers.owner)
    case.lets_in(callers.person)
    check_roles(case, callers)
    check_scopes(case, callers)
    check_numbers(case, callers)


def check_roles(case: Case, callers: Callers) -> None:
    """A member's role must open the area of the route's scope."""
    allowed = READS if case.route.method == "GET" else CHANGES
    for role, api in callers.by_role.items():
        if case.route.scope is None or case.route.scope.area in allowed[role]:
            case.lets_in(api)
        else:
            case.refuses(api, 403, "forbidden")


def check_scopes(case: Case, callers: Callers) -> None:
    """A key needs the route's scope, and must be a live key for what both environments share."""
    declared = case.route.scope
    for scope, api in callers.by_scope.items():
        if declared in {None, scope}:
            case.lets_in(api)
        else:
            case.refuses(api, 403, "forbidden")
            assert case.details["scope"] == declared
    for scope, api in callers.test_by_scope.items():
        if declared in {None, scope}:
            assert case.call(api).status_code not in {401, 403, 500}
        else:
            case.refuses(api, 403, "forbidden")
            assert case.details["scope"] == declared
    if declared in LIVE_SCOPES:
        case.refuses(callers.test_with_all, 403, "forbidden")
        assert case.details == {"scope": declared, "environment": "live"}


def check_numbers(case: Case, callers: Callers) -> None:
    """A key that is limited to another number gets nothing of this one, and nothing of the whole tenant."""
    declared = case.route.scope
    if declared is None:
        case.lets_in(callers.limited)
    elif declared not in NUMBER_SCOPES or not case.route.keeps_to_numbers:
        case.refuses(callers.limited, 403, "forbidden")
    elif case.row.ids:
        case.refuses(callers.limited, 404, "not_found")
    else:
        case.lets_in(callers.limited)


def check_app(case: Case, callers: Callers) -> None:
    for api in (callers.nobody, callers.bad_key, callers.no_token):
        case.refuses(api, 401, "unauthorized")
    for api in (callers.owner, callers.person, callers.staff, *callers.by_status.values()):
        case.refuses(api, 403, "forbidden")
    if case.row.ids:
        case.refuses(callers.other_app, 404, "not_found")
    case.lets_in(callers.app)


def check_staff(case: Case, callers: Callers) -> None:
    for api in (callers.nobody, callers.bad_key, callers.no_token):
        case.refuses(api, 401, "unauthorized")
    for api in (callers.owner, callers.app, callers.app_for_own, callers.person, *callers.by_status.values()):
        case.refuses(api, 403, "forbidden")
    case.lets_in(callers.staff)


def check_console(case: Case, callers: Callers) -> None:
    for api in (callers.nobody, callers.bad_key, callers.no_token):
        case.refuses(api, 401, "unauthorized")
    for api in (callers.owner, callers.app, callers.app_for_own, *callers.by_status.values()):
        case.refuses(api, 403, "forbidden")
    case.lets_in(callers.person)
    case.lets_in(callers.staff)


CHECKS = {
    "open": check_open,
    "tenant": check_tenant,
    "app": check_app,
    "staff": check_staff,
    "console": check_console,
}


@pytest.mark.django_db
class TestEachRouteOfDjango:
    @pytest.mark.parametrize(
        "route",
        [route for route in WITH_ROW if not is_answered_by_listener(route)],
        ids=lambda route: route.name,
    )
    def test_each_caller_gets_what_the_specification_says(self, route: Route, callers: Callers) -> None:
        CHECKS[route.kind](Case(route, callers.world), callers)


@pytest.mark.django_db(transaction=True)
def test_each_caller_of_the_listener_gets_what_the_specification_says() -> None:
    callers = Callers(made_world())
    answered = [route for route in WITH_ROW if is_answered_by_listener(route)]
    assert answered
    for route in answered:
        CHECKS[route.kind](Case(route, callers.world), callers)
