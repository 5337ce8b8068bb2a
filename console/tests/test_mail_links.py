"""Links in mails open the console's page after a log-in, in the environment that the mail is about."""

from typing import Any

import pytest
from django.test import Client

from gateway.clock import now
from tenants import mail
from tenants.models import OutboundMail, Tenant, User
from tests.one_of_each import one_of_each
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery staple"


def path_in_mail(tenant: Tenant, template: str, **context: Any) -> str:
    """The path behind the button of a mail."""
    tenant.contact_email = "asha@traders.example"
    mail.send_to_tenant(tenant=tenant, template=template, context=context)
    link = mail.links_in(OutboundMail.objects.latest("id").text)[-1]
    return "/" + link.split("/", 3)[3]


@pytest.fixture
def person(tenant: Tenant) -> User:
    return User.objects.create_user("asha@traders.example", PASSWORD, tenant=tenant)


@pytest.fixture
def endpoint(tenant: Tenant) -> Endpoint:
    return Endpoint.objects.create(
        tenant=tenant,
        environment="test",
        url="https://hooks.traders.example/in",
        event_types=["*"],
        secret="whsec_c2VjcmV0",
    )


def test_a_stranger_logs_in_and_gets_the_page_in_the_mails_environment(
    tenant: Tenant, person: User, endpoint: Endpoint
) -> None:
    path = path_in_mail(tenant, "endpoint_disabled", endpoint=endpoint, reason="gone")
    client = Client()
    login = client.get(path)["Location"]
    page = client.post(login, {"login": person.email, "password": PASSWORD}, follow=True)
    assert (page.status_code, page.redirect_chain[-1][0]) == (200, f"/console/webhooks/{endpoint.id}")
    text = page.content.decode()
    assert "hooks.traders.example" in text
    assert "the console was switched to test" in text


@pytest.mark.parametrize("template", ["endpoint_failing", "endpoint_recovered"])
def test_a_list_is_opened_in_the_mails_environment_and_only_a_switch_is_announced(
    tenant: Tenant, person: User, endpoint: Endpoint, template: str
) -> None:
    path = path_in_mail(tenant, template, endpoints=[endpoint])
    client = Client()
    client.force_login(person)
    assert "the console was switched to test" in client.get(path, follow=True).content.decode()
    assert "the console was switched to test" not in client.get(path, follow=True).content.decode()
    assert client.session["environment"] == "test"


def test_a_link_keeps_its_filter(tenant: Tenant, person: User, endpoint: Endpoint) -> None:
    endpoint.exhausted_count, endpoint.exhausted_since = 3, now()
    path = path_in_mail(tenant, "deliveries_exhausted", endpoint=endpoint)
    client = Client()
    client.force_login(person)
    page = client.get(path, follow=True)
    assert page.redirect_chain == [(f"/console/deliveries?endpoint={endpoint.id}&status=dead", 302)]
    assert "the console was switched to test" in page.content.decode()


def test_a_link_of_a_live_number_leads_back_to_live(tenant: Tenant, person: User) -> None:
    number = one_of_each(tenant).number
    shown = {"name": "+91 98000 00001", "id": number.phone_number_id, "reason": "It is not registered."}
    path = path_in_mail(tenant, "number_disconnected", numbers=[shown], others=0)
    client = Client()
    client.force_login(person)
    client.post("/console/preferences", {"environment": "test"})
    assert client.get(path.partition("?")[0]).status_code == 404
    assert client.get(path, follow=True).status_code == 200


def test_a_link_opens_no_other_tenants_page_and_no_live_world_to_a_sandbox(
    tenant: Tenant, other_tenant: Tenant, endpoint: Endpoint
) -> None:
    path = path_in_mail(tenant, "endpoint_disabled", endpoint=endpoint, reason="gone")
    stranger = User.objects.create_user("meena@else.example", PASSWORD, tenant=other_tenant)
    client = Client()
    client.force_login(stranger)
    assert client.get(path, follow=True).status_code == 404
    Tenant.objects.filter(pk=other_tenant.pk).update(sandbox=True)
    client.get("/console/webhooks?in=live")
    assert client.session.get("environment") != "live"
