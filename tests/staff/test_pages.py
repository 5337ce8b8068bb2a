"""The staff admin of all apps: every list and every row opens, and none shows a secret or the text of a message."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from gateway import ids
from gateway.clock import now
from gateway.encryption import EncryptedTextField
from gateway.request_log.models import ApiRequest
from messaging.models import Batch, KeptNotification, MessageTemplate
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.models import Tenant, User
from tenants.staff import dashboard, site
from tests.browsers import logged_in, staff_pages
from webhooks.models import Delivery, Endpoint, Event, Figure

pytestmark = pytest.mark.django_db

SECRETS = ["whsec_c2VjcmV0LXNlY3JldA", "EAAtokentokentoken", "908172", "a kept notification"]


@pytest.fixture(autouse=True)
def _no_kept_overview() -> None:
    cache.delete(dashboard.CACHE_KEY)


@pytest.fixture
def browser(staff: User) -> Client:
    return logged_in(staff)


def test_a_page_is_titled_with_what_staff_know_the_row_by(browser: Client, rows: list[Any]) -> None:
    account, number, endpoint = rows[:3]
    for row, name in ((account, "200"), (number, "100"), (endpoint, "shop.example")):
        url = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
        page = browser.get(url).content.decode()
        title = re.search(r"<title>\s*(.*?)\s*</title>", page, re.DOTALL)
        assert title is not None
        assert title[1].startswith(f"{name}, {row.tenant.name} |"), url


@pytest.fixture
def rows(tenant: Tenant) -> list[Any]:
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="200", access_token=SECRETS[1]
    )
    number = PhoneNumber.objects.create(
        tenant=tenant, account=account, environment="live", phone_number_id="100", pin=SECRETS[2]
    )
    endpoint = Endpoint.objects.create(
        tenant=tenant,
        url="https://shop.example/hook",
        event_types=["*"],
        secret=SECRETS[0],
        previous_secret=SECRETS[0],
        secret_prefix="whsec_c2Vj",
    )
    event = Event.objects.create(
        id=ids.uuid7(),
        tenant_id=tenant.id,
        type="message.inbound",
        dedupe_key="msg:1",
        payload_expires_on=date(2030, 1, 1),
    )
    attempt = {
        "at": "2026-11-01T00:00:00.000Z",
        "http_status": 500,
        "ms": 3,
        "error": "http_5xx",
    }
    delivery = Delivery.objects.create(
        id=ids.uuid7(),
        tenant_id=tenant.id,
        endpoint_id=endpoint.id,
        event_id=event.id,
        event_type=event.type,
        status="failed",
        attempts=1,
        attempt_log=[attempt],
    )
    batch = Batch.objects.create(
        tenant=tenant, environment="live", phone_number_id="100", total=1, rate_per_sec=80
    )
    kept = KeptNotification.objects.create(
        reason="unroutable", waba_id="200", body_sha256="0" * 64, body=SECRETS[3].encode()
    )
    template = MessageTemplate.objects.create(
        tenant=tenant, account=account, template_id="41", name="order", document="{}", changed_at=now()
    )
    return [account, number, endpoint, batch, kept, template, event, delivery]


def page(browser: Client, model: Any, row: Any = None, **query: str) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    path = reverse(f"{name}_change", args=[row.pk]) if row else reverse(f"{name}_changelist")
    answer = browser.get(path, query)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


def test_lists_and_pages_open_and_show_no_secret(browser: Client, rows: list[Any]) -> None:
    for row in rows:
        for text in (page(browser, type(row)), page(browser, type(row), row)):
            assert not [secret for secret in SECRETS if secret in text], type(row)


def test_no_page_names_an_encrypted_or_hashed_column() -> None:
    for model, model_admin in staff_pages().items():
        secret = {field.name for field in model._meta.get_fields() if isinstance(field, EncryptedTextField)}
        secret |= {"password", "key_hash", "token_hash", "body"}
        named = {field for _, options in model_admin.fieldsets or () for field in options["fields"]}
        shown = named | set(model_admin.fields or ()) | set(model_admin.list_display)
        assert shown - {"__str__"}, f"{model.__name__} must name its fields one by one"
        assert not shown & secret, model


def test_history_is_found_by_public_ids_and_by_tenant(
    browser: Client, rows: list[Any], tenant: Tenant
) -> None:
    *_, event, delivery = rows
    assert event.public_id in page(browser, Event, q=event.public_id)
    assert event.public_id in page(browser, Event, q=str(tenant.id))
    assert tenant.name in page(browser, Event, q=event.public_id)
    assert delivery.public_id in page(browser, Delivery, q=event.public_id)
    assert delivery.public_id in page(browser, Delivery, status__exact="failed")
    assert delivery.public_id not in page(browser, Delivery, q=str(uuid4()))


@pytest.mark.parametrize("model", [Event, Delivery, Batch, KeptNotification, MessageTemplate])
def test_big_tables_are_never_counted_sorted_or_read_from_the_start(
    browser: Client, rows: list[Any], model: Any
) -> None:
    by_every_column = ".".join(map(str, range(1, 9)))
    with CaptureQueriesContext(connection) as queries:
        page(browser, model, o=by_every_column)
    touched = [query["sql"] for query in queries if f'"{model._meta.db_table}"' in query["sql"]]
    assert touched
    assert not [sql for sql in touched if "COUNT(" in sql]
    assert all("WHERE" in sql and "LIMIT" in sql for sql in touched)
    newest_first = re.compile(rf'ORDER BY (?:"{model._meta.db_table}"\.)?"?\w+"? DESC LIMIT')
    assert all(newest_first.search(sql) for sql in touched)


@pytest.mark.parametrize(
    ("query", "shown_days"),
    [
        ({}, {0}),
        ({"period": "1"}, {0}),
        ({"period": "7"}, {0, 1, 6}),
        ({"period": "30"}, {0, 1, 6, 7, 29}),
        ({"period": "366"}, {0, 1, 6, 7, 29, 30, 365}),
        ({"period": "400"}, {0}),
        ({"q": "{tenant}"}, {0, 1, 6, 7, 29, 30, 365, 366}),
        ({"q": "{request}", "period": "1"}, {366}),
    ],
)
def test_a_list_covers_its_period_and_a_search_all_rows(
    browser: Client, tenant: Tenant, query: dict[str, str], shown_days: set[int]
) -> None:
    """Of two rows at the end of each period, one is a minute older than the end, and one a minute younger."""
    ages = {days: timedelta(days=days, minutes=1) for days in (1, 7, 30, 366)}
    ages |= {days - 1: timedelta(days=days, minutes=-1) for days in ages}
    made = {
        days: ApiRequest.objects.create(
            id=ids.first_at(now() - age), tenant_id=tenant.id, environment="live", method="GET", status=200,
            own_ms=1, upstream_ms=0,
        )
        for days, age in ages.items()
    }  # fmt: skip
    named = {"tenant": tenant.id, "request": made[366].public_id}
    text = page(browser, ApiRequest, **{name: value.format(**named) for name, value in query.items()})
    assert {days for days, call in made.items() if f"{call.pk}/change/" in text} == shown_days


def test_the_overview_plots_the_last_day(browser: Client, rows: list[Any]) -> None:
    text = browser.get("/admin/").content.decode()
    assert "Failures per hour" in text
    assert "&quot;data&quot;: [0" in text
    assert ", 1]" in text


def test_the_overview_names_the_busiest_businesses(browser: Client, tenant: Tenant) -> None:
    hour = int(now().timestamp()) // 3600
    counted = {"environment": "live", "phone_number_id": "", "template": "", "tenant_id": tenant.id}
    for age, direction, measure, value, count in (
        (0, "outbound", "sent", "", 12_345),
        (1, "outbound", "failed", "131026", 3),
        (1, "outbound", "failed", "131047", 4),
        (2, "webhook", "failed", "", 9),
        (24, "inbound", "received", "", 777),
    ):
        Figure.objects.create(
            hour=hour - age, direction=direction, measure=measure, value=value, count=count, **counted
        )
    counts = ["0", "12,345", "0", "7", "0", "9"]
    for page in (browser.get("/admin/").content.decode(), browser.get("/admin/").content.decode()):
        cells = re.findall(r"whitespace-nowrap\">([\d,]+)<", page)
        assert cells == counts * 2, "both tables must have the counts of the last 24 hours, of all errors"
        assert ">Busiest businesses<" in page, (
            "the overview must have the table, generated and from the cache"
        )


@pytest.mark.parametrize(
    ("path", "query", "active"),
    [
        ("/admin/", {}, ["Overview"]),
        ("/admin/find/", {}, ["Search"]),
        ("/admin/tenants/tenant/", {}, ["Tenants"]),
        ("/admin/tenants/tenant/1/change/", {}, ["Tenants"]),
        ("/admin/tenants/tenant/", {"status__exact": "active"}, ["Tenants"]),
        ("/admin/tenants/tenant/", {"status__exact": "pending_approval"}, ["Approval queue"]),
        ("/admin/tenants/apikey/1/change/", {}, ["API keys"]),
    ],
)
def test_the_side_bar_marks_the_page_that_is_open(
    path: str, query: dict[str, str], active: list[str]
) -> None:
    groups = site.navigation(RequestFactory().get(path, query))
    assert [item["title"] for group in groups for item in group["items"] if item["active"]] == active


def test_the_overview_counts_those_who_wait_and_warns_only_of_what_is_above_zero(
    browser: Client, tenant: Tenant
) -> None:
    def card(title: str) -> tuple[str, str, str]:
        text = browser.get("/admin/").content.decode().partition(f">{title}<")[2]
        colour, count, note = re.findall(
            r"(text-important|text-red-600)[^>]*>(\d+)<.*?<p[^>]*>([^<]*)<", text, re.DOTALL
        )[0]
        return colour, count, note.replace("\xa0", " ")

    stray, waiting = "Rows outside partitions", "Waiting for approval"
    assert card(waiting) == ("text-important", "0", "nobody is waiting")
    assert card(stray) == ("text-important", "0", "maintenance works")
    for days in (3, 1):
        Tenant.objects.create(name="Waiting", created_at=now() - timedelta(days=days))
    Tenant.objects.create(name="Active", status="active", created_at=now() - timedelta(days=9))
    for days in (401, 402, 403):
        ApiRequest.objects.create(
            id=ids.first_at(now() - timedelta(days=days)),
            tenant_id=tenant.id,
            status=200,
            own_ms=1,
            upstream_ms=0,
        )
    assert card(waiting) == ("text-important", "2", "oldest 3 days")
    assert card(stray) == ("text-red-600", "3", "maintenance failed")


def test_staff_without_a_role_see_no_figures() -> None:
    person = User.objects.create_user("new@service.example", is_staff=True)
    text = logged_in(person).get("/admin/").content.decode()
    assert "Your account has no role yet" in text
    assert "Waiting for approval" not in text


@pytest.mark.parametrize(("zone", "shown"), [("Asia/Kolkata", "1 Dec 2026, 00:00:01 IST"), ("UTC", "UTC")])
def test_staff_read_times_in_their_own_zone(staff: User, tenant: Tenant, zone: str, shown: str) -> None:
    User.objects.filter(pk=staff.pk).update(time_zone=zone)
    call = ApiRequest.objects.create(
        id=ids.first_at(datetime(2026, 11, 30, 18, 30, 1, tzinfo=UTC)), tenant_id=tenant.id, environment="live",
        method="GET", route="/v1/numbers", status=200, own_ms=12.34, upstream_ms=1204.0,
    )  # fmt: skip
    for text in (
        page(logged_in(staff), ApiRequest, call),
        page(logged_in(staff), ApiRequest, q=call.public_id),
    ):
        assert shown in text
        assert tenant.name in text
    fields = " ".join(re.sub(r"<[^>]*>", " ", page(logged_in(staff), ApiRequest, call)).split())
    assert "In the gateway 12.3 ms" in fields
    assert "At Meta 1,204.0 ms" in fields


@pytest.mark.parametrize(("is_production", "badge"), [(True, "Production"), (False, "Development")])
def test_a_badge_says_whether_this_is_production(
    browser: Client, settings: Settings, is_production: bool, badge: str
) -> None:
    settings.PRODUCTION = is_production
    text = browser.get("/admin/").content.decode()
    assert [word for word in ("Production", "Development") if re.search(rf">\s*{word}\s*<", text)] == [badge]


def test_the_side_bar_leads_to_every_page(browser: Client) -> None:
    sidebar = browser.get("/admin/").content.decode()
    for model in staff_pages():
        assert reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist") in sidebar
