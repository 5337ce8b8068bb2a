"""Every page of the console × every kind of visitor, from the table in `pages.py`."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from console import urls
from console.tests.pages import CHANGES, PAGES, READS, registered_pages
from tenants import platform_apps
from tenants.models import SignUp, Tenant, User
from tenants.staff import support_view
from tests.api_contract.authorisation import World
from tests.fixtures import shared_rows

pytestmark = pytest.mark.django_db


def test_every_page_has_a_row_and_every_row_a_page() -> None:
    pages = registered_pages()
    assert pages - set(PAGES) == set(), "add a line for each to PAGES in console/tests/pages.py"
    assert set(PAGES) - pages == set(), "these pages are gone: remove their lines"


def test_every_page_has_the_area_of_its_row() -> None:
    areas = {page.name: page.area.value for page in urls.PAGES}
    assert areas == {name: PAGES[name].area for name in areas}


@pytest.fixture(autouse=True)
def _others_are_away(settings: Settings) -> None:
    """Make Meta and the payment provider unreachable, because admitted pages call them."""
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = settings.RAZORPAY_BASE_URL = "http://127.0.0.1:9"
    settings.BILLING_ENABLED = True


def made_world(tenant: Tenant) -> World:
    SignUp.objects.create(
        tenant=tenant,
        email="asha@traders.example",
        company=tenant.name,
        website="traders.example",
        tax_id_type="pan",
        tax_id="AAAPL1234C",
        address="1 MG Road",
        city="Pune",
        state_code="27",
        pin_code="411001",
        phone="+919800000001",
    )
    app = platform_apps.create_app(name="Shop platform")
    return World(tenant=tenant, app=app, app_tenant=Tenant.objects.create(name="Of the app", app=app))


@pytest.fixture
def world(tenant: Tenant) -> World:
    return made_world(tenant)


ENVIRONMENT_OF_THEIR_OWN = (
    "console_api_keys",
    "console_rotate_key",
    "console_revoke_key",
    "console_device",
    "console_phone",
)
OPENED_BY_EACH_ROLE = {
    *(name for name, page in PAGES.items() if page.area == "own"),
    # A page of each of the other areas, with both methods.
    *{page.area: name for name, page in PAGES.items() if page.reads and page.changes}.values(),
}
SHOW_STATUS = {
    *{"console", "console_first_steps", "console_settings", "console_phone", "console_send"},
    *{"console_number", "console_numbers"},
}
"""The pages that differ between the statuses of an account that is not active."""


class Visitors:
    """All visitors. They are created once for all pages, because creating them takes longer than their requests."""

    def __init__(self) -> None:
        tenant = Tenant.objects.create(name="Asha Traders", status=Tenant.Status.ACTIVE)
        other = Tenant.objects.create(name="Bina Stores", status=Tenant.Status.ACTIVE)
        self.world = made_world(tenant)
        staff: dict[str, Any] = {"is_staff": True, "is_superuser": True}
        self._browsers = {
            **{role: browser_of(tenant, role) for role in READS},
            "of live": browser_of(tenant),
            "other": browser_of(other),
            "staff": browser_of(None, **staff),
            "support": browser_of(None, **staff),
        }
        # The table's objects are in the live environment. An account that awaits approval starts in its sandbox.
        self._browsers["of live"].post("/console/preferences", {"environment": "live"})
        self._browsers["support"].post(
            reverse("admin:tenants_tenant_see_as", args=[tenant.pk]),
            {"reason": "ticket 7", "_form_submitted": "on"},
        )

    def browser(self, name: str) -> Client:
        """A browser with a visitor's session and no state of earlier pages."""
        client, cookie = Client(raise_request_exception=False), settings.SESSION_COOKIE_NAME
        client.cookies[cookie] = self._browsers[name].cookies[cookie].value
        return client


@pytest.fixture(scope="class")
def visitors(django_db_setup: None, django_db_blocker: Any) -> Iterator[Visitors]:
    with django_db_blocker.unblock(), shared_rows():
        yield Visitors()


class Case:
    """One page with one visitor."""

    def __init__(self, name: str, visitors: Visitors) -> None:
        self.name, self.page = name, PAGES[name]
        self.world, self.browser = visitors.world, visitors.browser
        self._made: dict[str, Any] | None = None
        self.shown = 0
        """The status of the page for an owner. 0 before it is known, and for a page without GET."""

    def made(self) -> dict[str, Any]:
        """The parts of the page's path that name an object of the tenant."""
        if self._made is None:
            self._made = self.page.made(self.world)
        return self._made

    def get(self, client: Client) -> HttpResponse:
        return client.get(reverse(self.name, kwargs=self.made()))  # type: ignore[return-value]

    def post(self, client: Client) -> HttpResponse:
        made = self.made()
        body = {name: value.format(**made) for name, value in self.page.body.items()}
        answer: HttpResponse = client.post(reverse(self.name, kwargs=made), body)  # type: ignore[assignment]
        # An admitted change may delete its object.
        if answer.status_code < 400:
            self._made = None
        return answer

    def calls(self) -> list[Any]:
        """The methods of the page."""
        return [
            call for call, takes in ((self.get, self.page.reads), (self.post, self.page.changes)) if takes
        ]

    def allows(self, role: str, call: Any) -> bool:
        return self.page.area in (READS if call == self.get else CHANGES)[role]


def browser_of(tenant: Tenant | None, role: str = "owner", **fields: Any) -> Client:
    name = f"{role}-{User.objects.count()}@traders.example"
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_user(name, tenant=tenant, role=role, **fields))
    return client


def assert_opens(answer: HttpResponse) -> None:
    """Check that the page works. It may answer 400 if the body lacks a field."""
    assert answer.status_code in {200, 204, 302, 400}, answer.content.decode()[-2000:]
    assert not answer.headers.get("Location", "").startswith("/login")


class TestEachPage:
    @pytest.mark.parametrize("name", [name for name in PAGES if name in registered_pages()])
    def test_each_visitor_gets_what_the_table_says(self, name: str, visitors: Visitors) -> None:
        case = Case(name, visitors)
        _strangers_log_in(case)
        _each_role_gets_its_areas(case)
        _others_find_nothing(case)
        _staff_have_pages_of_their_own(case)
        _support_reads_what_holds_no_texts_and_changes_nothing(case)
        _methods_are_those_of_the_table(case)
        _status_decides_what_is_changed(case)


def _strangers_log_in(case: Case) -> None:
    for call in case.calls():
        answer = call(Client())
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login?next=")


def _each_role_gets_its_areas(case: Case) -> None:
    """Most pages are opened by one of the roles with the same rights, because `Page` only knows the area. The pages of
    `OPENED_BY_EACH_ROLE` are opened by each role. Each page is refused to each role that may not open it.
    """
    opened_with: set[tuple[bool, ...]] = set()
    for role in READS:
        client = case.browser(role)
        rights = tuple(case.allows(role, call) for call in (case.get, case.post))
        is_like_another = rights in opened_with and case.name not in OPENED_BY_EACH_ROLE
        opened_with.add(rights)
        for call in case.calls():
            if is_like_another and case.allows(role, call):
                continue
            answer = call(client)
            if role == "owner" and call == case.get:
                case.shown = answer.status_code
            if case.name == "console_application":
                decided = 302 if call == case.get else 404
                assert answer.status_code == (decided if case.allows(role, call) else 403)
            elif case.allows(role, call):
                assert_opens(answer)
                if call == case.get and not answer.streaming:
                    _forms_name_their_environment(case, answer)
                    _forms_are_for_those_who_may_send_them(case, role, answer)
            else:
                assert answer.status_code == 403
                assert "Your role is" in answer.content.decode()


def _forms_name_their_environment(case: Case, answer: HttpResponse) -> None:
    """Each form of a page that exists in both environments names its environment. The forms of keys have another field
    for the environment.
    """
    if case.page.area in {"integration", "conversations"} and not case.name.startswith(
        ENVIRONMENT_OF_THEIR_OWN
    ):
        _, _, content = answer.content.partition(b"<main")
        assert content.count(b'method="post"') == content.count(b'name="for_environment"')


def _forms_are_for_those_who_may_send_them(case: Case, role: str, answer: HttpResponse) -> None:
    """A page shows a form that changes something only to roles that may submit the form."""
    if case.page.area not in CHANGES[role]:
        _, _, content = answer.content.partition(b"<main")
        assert b'method="post"' not in content
        assert b"hx-post" not in content


def _others_find_nothing(case: Case) -> None:
    if case.page.of or case.page.make:
        client = case.browser("other")
        for call in case.calls():
            assert call(client).status_code == 404


def _staff_have_pages_of_their_own(case: Case) -> None:
    client = case.browser("staff")
    for call in case.calls():
        answer = call(client)
        if case.name == "console":
            assert answer["Location"] == reverse("admin:index")
        else:
            assert answer.status_code == 403


def _support_reads_what_holds_no_texts_and_changes_nothing(case: Case) -> None:
    """In a support view, staff can open only the listed pages, and only with a safe method."""
    client = case.browser("support")
    made = case.made()
    path = reverse(case.name, kwargs=made)
    before = _rows_of(case.world.tenant)
    if case.page.reads:
        answer: HttpResponse = client.get(path)  # type: ignore[assignment]
        opens = case.name in support_view.SHOWN_PAGES
        assert answer.status_code in ({200, 204, 302} if opens else {403})
        if opens and not answer.streaming:
            _, _, main = answer.content.partition(b"<main")
            assert main.count(b'method="post"') == main.count(b"/admin/see/end/")
            assert b"hx-post" not in main
    body = {name: value.format(**made) for name, value in case.page.body.items()}
    for method in ("post", "put", "patch", "delete", "options"):
        own = case.name == "console_preferences" and method == "post"
        assert getattr(client, method)(path, body).status_code in ({302} if own else {403, 405}), method
    assert _rows_of(case.world.tenant) == before


@cache
def _tables() -> list[str]:
    """The tables with a tenant id, including their partitions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.columns JOIN information_schema.tables USING (table_name)"
            " WHERE column_name = 'tenant_id' AND table_type = 'BASE TABLE' AND columns.table_schema = 'public'"
            " AND table_name !~ '_(default|[0-9]+)$'"
        )
        return [name for (name,) in cursor.fetchall()]


def _rows_of(tenant: Tenant) -> dict[str, Any]:
    """The rows of a tenant in each of these tables, as text."""
    with connection.cursor() as cursor:
        rows = " UNION ALL ".join(
            f"SELECT '{name}', t::text FROM {name} t WHERE tenant_id = %(id)s"  # noqa: S608
            for name in _tables()
        )
        cursor.execute(f"SELECT * FROM ({rows}) AS all_rows ORDER BY 1, 2", {"id": tenant.pk})  # noqa: S608
        return {"tenant": Tenant.objects.filter(pk=tenant.pk).values().get(), "rows": cursor.fetchall()}


def _methods_are_those_of_the_table(case: Case) -> None:
    client = case.browser("of live")
    if not case.page.changes:
        assert case.post(client).status_code == 405
    if not case.page.reads:
        path = reverse(case.name, kwargs=case.made())
        shown = client.get(path, follow=True)
        assert shown.status_code == 200
        assert path.startswith(shown.request["PATH_INFO"])


def _status_decides_what_is_changed(case: Case) -> None:
    client, page = case.browser("of live"), case.page
    for status in ("pending_approval", "rejected", "suspended"):
        Tenant.objects.filter(pk=case.world.tenant.pk).update(status=status, rejected_reason="x")
        if case.name == "console_application":
            for call in case.calls():
                decided = {302} if call == case.get else {404}
                assert call(client).status_code in (decided if status == "suspended" else {200, 400})
            reader = case.get(case.browser("read_only"))
            _forms_are_for_those_who_may_send_them(case, "read_only", reader)
            continue
        if page.reads and (status == "suspended" or case.name in SHOW_STATUS):
            shown = case.get(client)
            assert shown.status_code == case.shown
            if page.changes and status not in page.changed_while:
                _, _, main = shown.content.partition(b"<main")
                assert b'method="post"' not in main
        if page.changes and status in page.changed_while:
            assert_opens(case.post(client))
        elif page.changes:
            assert case.post(client).status_code == 403


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("numbers/1/refresh", "/console/numbers/1"),
        ("numbers/a b%3F%25/refresh", "/console/numbers/a%20b%3F%25"),
        ("billing/autopay?page=2", "/console/billing?page=2"),
        ("templates/1/edit/preview", "/console/templates/1/edit"),
        ("team/invitations/0199a0e6-0000-7000-8000-000000000000/again", "/console/team"),
        ("preferences", "/console"),
    ],
)
def test_a_buttons_target_leads_to_the_page_above_it_when_it_is_read(target: str, page: str) -> None:
    for read in (Client().get, Client().head):
        assert read(f"/console/{target}")["Location"] == page
    assert Client().put(f"/console/{target}").status_code == 405


def test_a_role_that_is_not_known_opens_nothing(tenant: Tenant) -> None:
    client = browser_of(tenant, "visitor")
    assert client.get("/console").status_code == 403
    assert client.post("/console/preferences", {}).status_code == 403


def test_the_navigation_and_the_first_steps_name_only_what_the_role_opens(tenant: Tenant) -> None:
    page = browser_of(tenant, "billing").get("/console").content.decode()
    assert 'href="/console/billing"' in page
    for closed in ("/console/messages", "/console/numbers", "/console/api-keys", "/console/webhooks"):
        assert f'href="{closed}"' not in page
    page = browser_of(tenant, "developer").get("/console").content.decode()
    assert 'href="/console/messages"' in page
    assert 'href="/console/billing"' not in page
    assert "First steps" in page


@pytest.mark.parametrize(
    ("path", "entry", "tabs", "current"),
    [
        ("/console", "Home", [], None),
        ("/console/search", None, [], None),
        ("/console/messages", "Messages", [], None),
        ("/console/batches", "Batches", ["Batches", "Scheduled"], "Batches"),
        ("/console/scheduled", "Batches", ["Batches", "Scheduled"], "Scheduled"),
        ("/console/batches/file", "Batches", [], None),
        ("/console/webhooks", "Webhooks", ["Endpoints", "Deliveries", "Events"], "Endpoints"),
        ("/console/events", "Webhooks", ["Endpoints", "Deliveries", "Events"], "Events"),
        ("/console/connected-apps", "API keys", ["API keys", "Connected apps"], "Connected apps"),
        ("/console/settings/audit", "Settings", ["Settings", "Data", "Audit log"], "Audit log"),
        ("/console/billing/profile", "Billing", [], None),
    ],
)
def test_the_navigation_marks_where_a_page_belongs(
    tenant: Tenant, path: str, entry: str | None, tabs: list[str], current: str | None
) -> None:
    page = browser_of(tenant).get(path).content.decode()
    navigation, _, rest = page.partition('aria-label="Console"')[2].partition("</nav>")
    assert re.findall(r'aria-current="page"><svg.*?</svg>([^<]+)', navigation) == ([entry] if entry else [])
    shown = re.findall(r"<a href=[^>]+>([^<]+)</a>", rest.partition('class="tabs"')[2].partition("</nav>")[0])
    assert shown == tabs
    marked = re.findall(r'aria-current="page">([^<]+)</a></li>', rest.partition('class="tabs"')[2])
    assert marked == ([current] if current else [])


def test_a_page_that_the_role_cannot_change_says_so_and_shows_no_form(tenant: Tenant) -> None:
    client = browser_of(tenant, "read_only")
    assert "First steps" not in client.get("/console").content.decode()
    for path in ("/console/api-keys", "/console/webhooks", "/console/settings"):
        page = client.get(path).content.decode()
        assert "you can read this page, but you cannot change anything" in page
        assert 'method="post"' not in page.partition("<main")[2]
    page = browser_of(tenant, "developer").get("/console/api-keys").content.decode()
    assert "cannot change anything" not in page
    assert 'method="post"' in page.partition("<main")[2]


def test_the_navigation_is_grouped_under_headings_and_a_role_sees_no_empty_one(tenant: Tenant) -> None:
    def headings(role: str) -> list[str]:
        page = browser_of(tenant, role).get("/console").content.decode()
        return re.findall(r'<p id="section-\w+">([^<]+)</p>', page)

    assert headings("owner") == ["Developers", "Try it out", "Account"]
    assert headings("billing") == ["Account"]
