"""The public pages, the texts that a sign-up accepts, and the first steps with and without a developer."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from billing.models import PlanVersion
from billing.pricing.periods import Period
from gateway.clock import now
from phone_numbers.models import PhoneNumber
from tenants import tenant_status
from tenants.credentials import api_keys
from tenants.models import OutboundMail, SignUp, Tenant, User
from tenants.tests.test_sign_up import sign_up
from tests.browsers import browser_of, text

pytestmark = pytest.mark.django_db


def test_the_bare_address_says_what_it_is_and_costs(tenant: Tenant, settings: Settings) -> None:
    settings.BILLING_ENABLED = True
    page = text(Client(), "/")
    assert "₹500.00</strong> a month for your first number" in page
    month = str(Period.of(now()))
    PlanVersion.objects.create(
        starts=month,
        first_number_paise=70_050,
        additional_number_paise=100,
        included_numbers=2,
        created_at=now(),
        gst_percent=12,
    )
    PlanVersion.objects.create(
        tenant=tenant, starts=month, first_number_paise=1, additional_number_paise=1, created_at=now()
    )
    page = text(Client(), "/")
    assert "₹700.50</strong> a month for your first 2 numbers" in page, "everybody's terms of the month"
    assert "plus 12 % GST" in page
    settings.BILLING_ENABLED = False
    assert "a month" not in text(Client(), "/"), "nothing is billed, so there is no price"
    assert browser_of(tenant).get("/")["Location"] == "/console"


@pytest.mark.parametrize("name", ["terms", "privacy"])
def test_the_texts_are_the_operators(name: str, settings: Settings, tmp_path: Path) -> None:
    assert settings.BILLING_SELLER_NAME in text(Client(), f"/{name}")
    settings.TEXTS_DIR = str(tmp_path)
    assert settings.BILLING_SELLER_NAME in text(Client(), f"/{name}"), (
        "a file that is not there has a default"
    )
    (tmp_path / f"{name}.md").write_text("# Our own\n\nWrite to {{ support_email }}.")
    page = text(Client(), f"/{name}")
    assert "<h1>Our own</h1>" in page
    assert f"Write to {settings.SUPPORT_EMAIL}." in page
    assert "{{" not in page


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/terms", "/privacy", "/errors/131047", "/robots.txt", "/sitemap.xml", "/outbox"),
        *("/.well-known/security.txt", "/packages/simple/whabuzz/"),
        *("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource"),
    ],
)
def test_public_pages_can_only_be_read(path: str) -> None:
    client = Client()
    assert client.head(path).status_code != 405
    assert client.post(path).status_code == 405


def test_the_privacy_notice_says_how_long_ids_of_customers_are_kept(settings: Settings) -> None:
    settings.EVENT_METADATA_DAYS = 731
    page = text(Client(), "/privacy")
    assert "731 days" in page
    assert "we keep only counts" not in page


def test_a_sign_up_keeps_which_texts_it_agreed_to(settings: Settings, tmp_path: Path) -> None:
    settings.TEXTS_DIR = str(tmp_path)
    own = {"terms": "Pay.", "privacy": "We keep your name."}
    for name, said in own.items():
        (tmp_path / f"{name}.md").write_text(said)
    browser = Client()
    form = text(browser, "/sign-up")
    assert 'href="/terms"' in form
    assert 'href="/privacy"' in form
    assert sign_up(browser).status_code == 302
    (tmp_path / "terms.md").write_text("Pay more.")
    agreed = SignUp.objects.get().agreed_texts
    assert agreed == {name: sha256(said.encode()).hexdigest() for name, said in own.items()}


def mails() -> list[tuple[str, str]]:
    return list(OutboundMail.objects.order_by("id").values_list("to", "subject"))


def test_the_confirmation_is_sent_once_more_to_who_signed_up(tenant: Tenant) -> None:
    browser, other = Client(), Client()
    sign_up(browser)
    assert len(mails()) == 1
    browser.post("/sign-up/sent")
    assert mails()[1:] == mails()[:1], "the same mail to the same address"
    sign_up(other, company="Somebody Else")
    browser.post("/sign-up/sent")
    assert "Infosys Limited" in OutboundMail.objects.latest("id").text, "one's own form, not the newest"
    Client().post("/sign-up/sent")
    assert len(mails()) == 4, "who signed up nowhere sends nothing"


def test_one_mailbox_is_not_flooded_by_asking_again() -> None:
    browser = Client()
    sign_up(browser)
    assert [browser.post("/sign-up/sent").status_code for _ in range(5)] == [302] * 4 + [429]
    assert len(mails()) == 5


def test_an_address_with_an_account_gets_the_same_mail_again(tenant: Tenant) -> None:
    browser = Client()
    User.objects.create_user("owner@infosys.com", "a long enough password", tenant=tenant)
    answers = [sign_up(browser), browser.post("/sign-up/sent")]
    assert {answer["Location"] for answer in answers} == {"/sign-up/sent"}
    assert len(mails()) == 2
    assert mails()[0] == mails()[1]
    assert not SignUp.objects.exists()


def environment(browser: Client) -> str:
    found: str = browser.get("/console").context["console"].environment
    return found


def test_approval_opens_live_whatever_was_looked_at_before(tenant: Tenant) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(status="pending_approval")
    browser = browser_of(tenant)
    browser.post("/console/preferences", {"environment": "test", "next": "/console"})
    assert environment(browser) == "test"
    tenant_status.approve(tenant_id=tenant.id)
    assert environment(browser) == "live"
    browser.post("/console/preferences", {"environment": "test", "next": "/console"})
    assert environment(browser) == "test", "a choice made since is kept"


def test_the_first_steps_are_those_of_a_developer_or_of_somebody_without(tenant: Tenant) -> None:
    browser = browser_of(tenant)
    page = text(browser, "/console")
    assert "Create an API key" in page
    assert 'aria-pressed="true">I have a developer' in page
    browser.post("/console/preferences", {"way": "none", "next": "/console"})
    for path in ("/console", "/console/first-steps"):
        page = text(browser, path)
        assert "Turn on conversations" in page
        assert "API key</strong>" not in page
        assert "webhook" not in page.partition('id="first-steps"')[2].partition("</article>")[0].lower()
    browser.post("/console/preferences", {"way": "anything", "next": "/console"})
    assert "Turn on conversations" in text(browser, "/console")


def test_the_step_connects_a_live_number(tenant: Tenant, settings: Any) -> None:
    browser = browser_of(tenant)
    browser.post("/console/preferences", {"environment": "test", "next": "/console"})
    assert 'href="/console/numbers?in=live"' in text(browser, "/console")
    browser.get("/console/numbers?in=live", follow=True)
    assert environment(browser) == "live"


def test_the_quickstart_holds_ones_own_values(
    tenant: Tenant, other_tenant: Tenant, number: PhoneNumber, settings: Settings
) -> None:
    ours, theirs = (
        api_keys.create(name="web shop", environment="live", tenant=of) for of in (tenant, other_tenant)
    )
    browser = browser_of(tenant)
    page = text(browser, "/console/quickstart")
    assert f"{settings.BASE_URL}/v1/messages" in page
    assert f'"from": "{number.phone_number_id}"' in page
    assert f"{ours.row.prefix}…" in page
    assert theirs.row.prefix not in page
    assert ours.key not in page
    browser.post("/console/preferences", {"environment": "test", "next": "/console"})
    page = text(browser, "/console/quickstart")
    assert number.phone_number_id not in page, "another environment has other numbers and keys"
    assert ours.row.prefix not in page
