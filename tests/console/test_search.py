"""The console's search: what a business pastes leads to its own things, and never to another's."""

import html
from datetime import date
from typing import Any

import pytest
from django.test import Client

from gateway import ids
from messaging.models import Batch
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.credentials import api_keys
from tenants.models import Tenant, User
from tests.browsers import text
from webhooks.models import Delivery, Endpoint, Event

pytestmark = pytest.mark.django_db


@pytest.fixture
def things(tenant: Tenant) -> dict[str, Any]:
    """One of each kind; how it is asked for → the path of its page."""
    account = BusinessAccount.objects.create(
        tenant=tenant, environment="live", waba_id="2001", access_token="EAA"
    )
    PhoneNumber.objects.create(
        tenant=tenant,
        account=account,
        environment="live",
        phone_number_id="1001",
        display_phone_number="+91 98000 00001",
        digits="919800000001",
    )
    endpoint = Endpoint.objects.create(
        tenant=tenant, url="https://hooks.traders.example/in", event_types=["*"], secret="whsec_YQ"
    )
    event = Event.objects.create(
        id=ids.uuid7(),
        tenant_id=tenant.id,
        type="message.inbound",
        dedupe_key="msg:1",
        payload_expires_on=date(2030, 1, 1),
    )
    delivery = Delivery.objects.create(
        id=ids.uuid7(),
        tenant_id=tenant.id,
        endpoint_id=endpoint.id,
        event_id=event.id,
        event_type=event.type,
    )
    batch = Batch.objects.create(
        tenant=tenant,
        environment="live",
        phone_number_id="1001",
        total=1,
        rate_per_sec=80,
        client_ref="diwali",
    )
    key = api_keys.create(name="server", environment="live", tenant=tenant)
    return {
        event.public_id: f"/console/events/{event.public_id}",
        event.public_id.lower(): f"/console/events/{event.public_id}",
        delivery.public_id: f"/console/deliveries/{delivery.public_id}",
        batch.public_id: f"/console/batches/{batch.public_id}",
        "diwali": f"/console/batches/{batch.public_id}",
        "1001": "/console/numbers/1001",
        "+91 98000-00001": "/console/numbers/1001",
        "hooks.traders": f"/console/webhooks/{endpoint.id}",
        str(endpoint.id): f"/console/webhooks/{endpoint.id}",
        key.key: f"/console/api-keys/{key.row.id}/rotate",
        "figures": "/console/figures",
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


def test_what_is_not_found_is_taught(browser: Client) -> None:
    assert "Paste what your server" in text(browser, "/console/search")
    for odd in ("%", "zzz", "wamid.x", "req_1", "<script>"):
        page = browser.get("/console/search", {"q": odd}).content.decode()
        assert "<script>" not in page.replace("<script src", "")
        assert "Id, number or name" in page
