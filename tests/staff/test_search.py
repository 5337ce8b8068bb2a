"""The staff search over all apps, and the links on a tenant's page to the tenant's rows."""

import html
import re
from collections import Counter
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from phone_numbers.models import PhoneNumber
from tenants import audit
from tenants.credentials.api_keys import NewKey
from tenants.models import EmailDomainRule, PlatformApp, Tenant, User
from tenants.staff import search
from tenants.staff.dialogs import change_url
from tests.browsers import logged_in, text
from tests.one_of_each import OneOfEach, one_of_each
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(tenant: Tenant, other_tenant: Tenant) -> OneOfEach:
    """One row of each kind, and a second tenant, which no search for the first tenant may show."""
    Tenant.objects.filter(pk=tenant.pk).update(
        contact_email="asha@traders.example", website="https://traders.example", tax_id="AAAPL1234C"
    )
    User.objects.create_user("ravi@traders.example", tenant=tenant)
    made = one_of_each(tenant)
    Endpoint.objects.filter(pk=made.endpoint.pk).update(uid="orders-server")
    return made


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("asha tr", "Asha Traders"),
        ("traders.example", "hooks.traders.example"),
        ("RAVI@traders", "ravi@traders.example"),
        ("aaapl1234c", "Asha Traders"),
        ("+91 98000-00001", "+91 98000 00001"),
        ("1001", "+91 98000 00001"),
        ("2001", "Asha Traders, live"),
        ("{event}", "message.inbound"),
        ("{delivery}", "message.inbound"),
        ("{batch}", "bat_"),
        ("{wamid}", "message.inbound"),
        ("{key}", "server"),
        ("{tenant_id}", "Asha Traders"),
        ("{endpoint_id}", "hooks.traders.example"),
        ("orders-server", "hooks.traders.example"),
    ],
)
def test_staff_find_a_row_by_anything_that_names_it(
    staff: User, tenant: Tenant, rows: OneOfEach, asked: str, found: str
) -> None:
    words = asked.format(
        event=rows.event.public_id.lower(),
        delivery=rows.delivery.public_id,
        batch=rows.batch.public_id,
        wamid=rows.message.key,
        key=rows.key.row.prefix + "0123456789",
        tenant_id=tenant.id,
        endpoint_id=rows.endpoint.id,
    )
    answer = logged_in(staff).get("/admin/find/", {"q": words}, follow=True)
    assert answer.status_code == 200
    page = html.unescape(answer.content.decode())
    assert found in page
    assert "Bina Stores" not in page


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("shop-7", "Asha Traders"),
        ("SHOP-7", None),
        ("aaapl1234", None),
        ("asha@", "Active, asha@traders.example, https://traders.example"),
        ("//traders.ex", "Active, asha@traders.example, https://traders.example"),
        ("{app_id}", "Shop platform"),
        ("shop plat", "{app_id}"),
        ("{key_id}", "server, Asha Traders"),
        ("{app_key}", "platform, Shop platform"),
        ("staff@service", "Person · Staff"),
        ("ravi@", "Person · Asha Traders"),
        ("r", None),
        (" ", None),
    ],
)
def test_staff_read_what_a_hit_is(
    staff: User,
    tenant: Tenant,
    rows: OneOfEach,
    platform_app: PlatformApp,
    app_key: NewKey,
    asked: str,
    found: str | None,
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(external_ref="shop-7")
    named = {"app_id": platform_app.id, "key_id": rows.key.row.id, "app_key": app_key.key}
    hits = search.find(staff, asked.format(**named))
    said = [f"{hit.title} {hit.kind} · {hit.note}" for hit in hits]
    assert bool(said) is (found is not None)
    assert all(found is None or found.format(**named) in each for each in said)


def test_each_kind_has_ten_hits_at_most(staff: User) -> None:
    for number in range(11):
        Tenant.objects.create(name=f"Chain {number}")
        PlatformApp.objects.create(name=f"Chain {number}")
    hits = search.find(staff, "chain")
    assert Counter(hit.kind for hit in hits) == {"Tenant": 10, "Platform app": 10}
    assert [hit.title for hit in hits][:2] == ["Chain 10", "Chain 9"], "the newest first"


def test_a_single_hit_opens_at_once_and_nothing_found_says_what_can_be(staff: User, rows: OneOfEach) -> None:
    client = logged_in(staff)
    answer = client.get("/admin/find/", {"q": rows.event.public_id})
    assert answer["Location"] == f"/admin/webhooks/event/{rows.event.pk}/change/"
    for nothing in ("zzzz", "evt_00000000000000000000000000", "%", "x" * 5000):
        page = client.get("/admin/find/", {"q": nothing}).content.decode()
        assert "Nothing has this ID" in page


def test_staff_find_only_what_they_may_see(tenant: Tenant, rows: OneOfEach) -> None:
    narrow = User.objects.create_user("narrow@service.example", is_staff=True)
    narrow.user_permissions.add(Permission.objects.get(codename="view_tenant"))
    client = logged_in(narrow)
    assert "Nothing has this ID" in text(client, "/admin/find/?q=ravi@traders")
    page = text(client, f"/admin/tenants/tenant/{tenant.pk}/change/")
    assert "hooks.traders.example" not in page


def test_the_search_is_closed_to_customers(browser: Client) -> None:
    assert browser.get("/admin/find/?q=asha").status_code in {302, 403}
    assert Client().get("/admin/find/?q=asha")["Location"].startswith("/admin/login")


def test_an_audit_entry_leads_to_its_target_alone(staff: User, tenant: Tenant, rows: OneOfEach) -> None:
    person = User.objects.create_user("asha@traders.example", tenant=tenant)
    User.objects.create_user(f"shop{person.pk}@other.example")
    rule = EmailDomainRule.objects.create(domain="zoho.com", verdict="allow")
    app = PlatformApp.objects.create(name="Shop platform")
    PhoneNumber.objects.create(
        tenant=tenant, account=rows.account, environment="live", phone_number_id="1002", digits="1001"
    )
    client = logged_in(staff)
    for target_type, target_id, row in (
        ("tenant", tenant.pk, tenant),
        ("user", person.pk, person),
        ("api_key", rows.key.row.pk, rows.key.row),
        ("app", app.pk, app),
        ("email_domain", rule.pk, rule),
        ("webhook_endpoint", rows.endpoint.pk, rows.endpoint),
        ("webhook_delivery", rows.delivery.public_id, rows.delivery),
        ("number", rows.number.phone_number_id, rows.number),
        ("account", rows.account.waba_id, rows.account),
    ):
        audit.record(action="app.create", target_type=target_type, target_id=target_id)
        list_page = text(client, "/admin/tenants/auditentry/")
        (link,) = set(re.findall(rf'href="([^"]*)">{target_id}</a>', list_page))
        shown, page = text(client, link), change_url(type(row), row.pk)
        if link != page:
            assert set(re.findall(r"/admin/numbers/\w+/[\w-]+/change/", shown)) == {page}


def test_an_audit_entry_without_a_target_or_a_page_says_so(staff: User, tenant: Tenant) -> None:
    invitation, client = uuid4(), logged_in(staff)
    audit.record(action="team.remove", target_type="user", target_id=4711)
    audit.record(action="team.invite", target_type="invitation", target_id=invitation)
    page = text(client, "/admin/tenants/auditentry/")
    [link] = re.findall(r'href="([^"]*)">4711</a>', page)
    assert "Perhaps it was deleted?" in client.get(link, follow=True).content.decode()
    assert f">{invitation}</span>" in page
    assert f">{invitation}</a>" not in page


def test_a_tenants_page_leads_everywhere(staff: User, tenant: Tenant, rows: OneOfEach) -> None:
    client = logged_in(staff)
    page = text(client, f"/admin/tenants/tenant/{tenant.pk}/change/")
    for name, model in (("numbers", "phonenumber"), ("webhooks", "endpoint")):
        row = rows.number if model == "phonenumber" else rows.endpoint
        assert f"/admin/{name}/{model}/{row.pk}/change/" in page
    for path in (
        f"/admin/webhooks/delivery/?q={tenant.pk}",
        f"/admin/webhooks/event/?q={tenant.pk}",
        f"/admin/messaging/batch/?q={tenant.pk}",
        f"/admin/tenants/apikey/?q={tenant.pk}",
    ):
        assert path in page
        assert "Asha Traders" in text(client, path)


def test_the_links_of_a_tenant_are_about_its_own_rows(
    staff: User, tenant: Tenant, other_tenant: Tenant
) -> None:
    before = list(search.lines_of(staff, other_tenant))
    one_of_each(tenant)
    User.objects.create_user("ravi@traders.example", tenant=tenant)
    assert list(search.lines_of(staff, other_tenant)) == before
    assert len(list(search.lines_of(staff, tenant))) > len(before)
