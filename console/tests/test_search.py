"""The console's search: a pasted text finds the tenant's own objects, never those of another tenant."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from console.tests.test_account import logged_call
from messaging.models import MessageTemplate
from tenants.models import Tenant, User
from tests.browsers import text
from tests.one_of_each import one_of_each
from webhooks.models import Endpoint, Message

pytestmark = pytest.mark.django_db


@pytest.fixture
def things(tenant: Tenant) -> dict[str, Any]:
    """One object of each kind: search text → the path of its page."""
    made = one_of_each(tenant)
    MessageTemplate.objects.update(environment="live")
    Message.objects.update(wa_id="919812345678")
    Endpoint.objects.update(uid="shop-1")
    event, delivery, batch = made.event.public_id, made.delivery.public_id, made.batch.public_id
    call = logged_call(tenant).public_id
    return {
        event: f"/console/events/{event}",
        event.lower(): f"/console/events/{event}",
        delivery: f"/console/deliveries/{delivery}",
        batch: f"/console/batches/{batch}",
        "diwali": f"/console/batches/{batch}",
        "1001": "/console/numbers/1001",
        "+91 98000-00001": "/console/numbers/1001",
        "hooks.traders": f"/console/webhooks/{made.endpoint.id}",
        str(made.endpoint.id): f"/console/webhooks/{made.endpoint.id}",
        made.key.key: f"/console/api-keys/{made.key.row.id}/rotate",
        "figures": "/console/figures",
        call.lower(): f"/console/requests/{call}",
        made.message.key: f"/console/messages/{made.message.key}",
        "+91 98123-45678": "/console/messages?wa_id=%2B919812345678",
        "98123 45678": "/console/messages?wa_id=%2B919812345678",
        "98000 00001": "/console/numbers/1001",
        "2001": "/console/numbers/1001",
        " shop-1 ": f"/console/webhooks/{made.endpoint.id}",
        "RDE": "/console/templates/41",
        "41": "/console/templates/41",
    }


def test_each_id_leads_to_its_page(browser: Client, things: dict[str, str]) -> None:
    for asked, path in things.items():
        answer = browser.get("/console/search", {"q": asked})
        assert answer.status_code == 302, asked
        assert answer["Location"] == path
        assert browser.get(path).status_code == 200
        assert path in html.unescape(browser.get("/console/search/hits", {"q": asked}).content.decode())


def test_another_tenant_the_other_environment_and_a_closed_role_find_nothing(
    browser: Client, stranger: Client, tenant: Tenant, things: dict[str, str]
) -> None:
    browser.post("/console/preferences", {"environment": "test"})
    billing = Client()
    billing.force_login(User.objects.create_user("b@traders.example", tenant=tenant, role="billing"))
    of_both = {asked for asked in things if asked.startswith("wb_")}
    for asked in things.keys() - {"figures"}:
        for client in (stranger, billing, *([] if asked in of_both else [browser])):
            answer = client.get("/console/search", {"q": asked})
            assert answer.status_code == 200, asked
            assert "Nothing in the" in answer.content.decode()
    assert "Nothing in the" in text(billing, "/console/search?q=figures")


def test_a_search_shows_the_newest_five_of_a_kind_for_two_characters_or_more(
    browser: Client, tenant: Tenant
) -> None:
    for number in range(7):
        Endpoint.objects.create(tenant=tenant, url=f"https://{number}.example/", event_types=["*"])

    def found(asked: str) -> list[str]:
        return re.findall(r"https://(\d)\.example", text(browser, f"/console/search/hits?q={asked}"))

    assert found("example") == ["6", "5", "4", "3", "2"]
    assert found("e") == []


def test_what_is_not_found_is_taught(browser: Client) -> None:
    assert "Paste what your server" in text(browser, "/console/search")
    for odd in ("%", "zzz", "wamid.x", "req_1", "<script>"):
        page = browser.get("/console/search", {"q": odd}).content.decode()
        assert "<script>" not in page.replace("<script src", "")
        assert "Id, number or name" in page
