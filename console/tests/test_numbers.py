"""The console's number pages: problems and their repair, connecting, registering, releasing, and access."""

import html
import re
from datetime import timedelta

import orjson
import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from console.number_forms import ProfileForm
from console.warnings import MOST_WARNINGS
from gateway.clock import now
from messaging.models import FlowEndpoint
from messaging.tests.conftest import connected_number
from phone_numbers.connection.explanations import explained
from phone_numbers.models import BusinessAccount, ConnectSession, PhoneNumber
from tenants.models import Tenant, User
from tests.browsers import logged_in, text
from tests.simulated import RunningSimulator

pytestmark = pytest.mark.django_db


@pytest.fixture
def number(tenant: Tenant, simulator: RunningSimulator) -> PhoneNumber:
    return connected_number(tenant, simulator.account())


def test_a_number_says_why_it_cannot_send_and_what_repairs_it(browser: Client, number: PhoneNumber) -> None:
    for state, detail, repair in (
        ("pending", "no_verified_endpoint", "Add or verify an endpoint"),
        ("pending", "not_registered", "Register it"),
        ("disconnected", "deregistered", "Register it"),
        ("disconnected", "not_subscribed", "Subscribe again"),
        ("disconnected", "token_invalid", "Connect the account again"),
        ("disconnected", "account_removed", "Connect the account again"),
        ("disconnected", "account_restricted", "Business Support"),
    ):
        PhoneNumber.objects.update(connection_state=state, connection_detail=detail)
        page = text(browser, f"/console/numbers/{number.phone_number_id}")
        assert explained(detail).reason in page
        assert repair in page, detail
        form = f'action="{reverse("console_number_register", args=[number.phone_number_id])}"'
        assert (form in page) is (detail in {"not_registered", "deregistered"}), detail
        listed = text(browser, "/console/numbers")
        assert explained(detail).reason in listed
        for button, details in {
            "Turn conversations on": {"no_verified_endpoint"},
            "add an endpoint": {"no_verified_endpoint"},
            "What to do": {
                "not_registered",
                "deregistered",
                "not_subscribed",
                "token_invalid",
                "account_removed",
            },
        }.items():
            assert (f"{button}</a>" in listed) is (detail in details), (button, detail)
        assert ("cannot send" in text(browser, "/console")) is (state == "disconnected"), detail


def test_a_connected_number_of_a_suspended_business_is_not_said_to_send(
    browser: Client, number: PhoneNumber, tenant: Tenant
) -> None:
    for path in ("/console/numbers", f"/console/numbers/{number.phone_number_id}"):
        assert "It can send and receive." in text(browser, path)
    Tenant.objects.filter(pk=tenant.pk).update(status="suspended")
    for path in ("/console/numbers", f"/console/numbers/{number.phone_number_id}"):
        page = text(browser, path)
        assert "Sending works again once the suspension ends." in page
        assert "It can send" not in page


def test_the_messaging_limit_is_a_count_of_customers(browser: Client, number: PhoneNumber) -> None:
    for tier, words in (
        ("TIER_50", "50 customers a day"),
        ("TIER_250", "250 customers a day"),
        ("TIER_10K", "10,000 customers a day"),
        ("TIER_UNLIMITED", "No limit of customers a day"),
        ("TIER_NEW", "TIER_NEW"),
        (None, "–"),
    ):
        PhoneNumber.objects.update(messaging_limit_tier=tier)
        page = text(browser, f"/console/numbers/{number.phone_number_id}")
        assert f"<dt>Limit</dt><dd>{words}" in page, tier


def test_numbers_that_one_token_took_away_are_one_warning(browser: Client, number: PhoneNumber) -> None:
    PhoneNumber.objects.create(
        tenant=number.tenant, account=number.account, environment="live", phone_number_id="77"
    )
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="token_invalid")
    page = text(browser, "/console")
    assert page.count("cannot send") == 1
    assert "2 numbers cannot send, for the same reason. Meta refuses the token" in page


def test_home_warns_of_own_numbers_and_tokens_of_the_environment_alone(
    browser: Client, tenant: Tenant, other_tenant: Tenant
) -> None:
    ends = now() + timedelta(days=6)
    for serial, (owner, environment, fields) in enumerate(
        (
            (tenant, "live", {"token_expires_at": ends}),
            (tenant, "live", {"data_access_expires_at": ends}),
            (tenant, "live", {"token_expires_at": ends, "token_invalid_at": now()}),
            (tenant, "test", {"token_expires_at": ends}),
            (other_tenant, "live", {"token_expires_at": ends}),
        )
    ):
        account = BusinessAccount.objects.create(
            tenant=owner, environment=environment, waba_id=f"80{serial}", **fields
        )
        PhoneNumber.objects.create(
            tenant=owner,
            account=account,
            environment=environment,
            phone_number_id=f"90{serial}",
            display_phone_number="+91 98000 00001" if serial == 1 else "",
            connection_state="connected" if serial == 2 else "disconnected",
            connection_detail=("not_subscribed", "deregistered", None, "token_invalid", "token_invalid")[
                serial
            ],
        )
    notes = re.findall(r'<div class="note (\w+)"><p>(.*?)\.? ', text(browser, "/console"))
    page = text(browser, "/console")
    assert re.findall(r'<div class="note bad"><p>(.+?) cannot send', page) == ["+91 98000 00001", "900"]
    day = f"{ends:%d %B} (UTC)"
    assert re.findall(r"The token of account (\d+) ends on ([^.]+)\.", page) == [("801", day), ("800", day)]
    assert [level for level, _ in notes] == ["bad", "bad", "warn", "warn"]


def test_a_token_that_ends_soon_is_shown_beside_many_that_do_not(
    browser: Client, number: PhoneNumber, tenant: Tenant
) -> None:
    BusinessAccount.objects.update(token_expires_at=now() + timedelta(days=6))
    for serial in range(MOST_WARNINGS):
        BusinessAccount.objects.create(tenant=tenant, environment="live", waba_id=f"9{serial}")
    assert f"The token of account {number.account.waba_id} ends on" in text(browser, "/console")
    BusinessAccount.objects.update(token_expires_at=now() + timedelta(days=9))
    assert "The token of account" not in text(browser, "/console")


def test_connecting_opens_a_session_of_the_visits_environment(browser: Client) -> None:
    browser.post("/console/preferences", {"environment": "test"})
    answer = browser.post("/console/numbers/connect")
    session = ConnectSession.objects.get()
    assert session.environment == "test"
    assert session.return_url.endswith("/console/numbers?in=test")
    assert "/connect/" in answer["Location"]


def test_who_returns_from_the_sign_up_sees_the_result_of_the_own_session(
    browser: Client, stranger: Client
) -> None:
    browser.post("/console/numbers/connect")
    session = ConnectSession.objects.get()
    path = f"/console/numbers?session_id={session.public_id}"
    for status, words in (
        ("open", "The sign-up is not finished yet."),
        ("connected", "The account is connected."),
        ("failed", "The account was not connected."),
    ):
        ConnectSession.objects.update(status=status)
        found = re.findall(r'<div class="note \w+" role="\w+"><p>(?:<strong>)?([^<]+)', text(browser, path))
        assert found == [words]
        for other in (stranger, logged_in(User.objects.get(tenant=session.tenant))):
            other.post("/console/preferences", {"environment": "test" if other is not stranger else "live"})
            assert 'role="' not in text(other, path).partition("<h1>")[2].partition('class="empty"')[0]
    assert "Open sign-up links: 0 of at most" in text(browser, "/console/numbers")
    ConnectSession.objects.update(status="open")
    assert "Open sign-up links: 1 of at most" in text(browser, "/console/numbers")
    assert "Open sign-up links: 0 of at most" in text(stranger, "/console/numbers")


def test_a_failed_sign_up_says_why_and_has_the_button_that_connects_again(browser: Client) -> None:
    browser.post("/console/numbers/connect")
    session = ConnectSession.objects.get()
    for source, code, words in (
        ("whabuzz", "cancelled", "You left the sign-up before its end."),
        ("whabuzz", "conflict", "Held by <another>. Choose another account"),
        ("whabuzz", "invalid_request", "Held by <another>. Connect again, choose the account itself"),
        ("whabuzz", "not_found", "Held by <another>."),
        ("meta", "signup_error", "Meta ended the sign-up: Held by <another>."),
        ("meta", 100, "Meta refused: Held by <another>. The result of a sign-up works only once"),
    ):
        error = {"source": source, "code": code, "message": "Held by <another>."}
        ConnectSession.objects.update(status="failed", error=error)
        page = text(browser, f"/console/numbers?session_id={session.public_id}")
        assert words in page, code
        assert "Connect again" in page, code


def test_a_restricted_tenant_sees_why_it_cannot_connect(
    browser: Client, tenant: Tenant, settings: Settings
) -> None:
    settings.BILLING_ENABLED = True
    Tenant.objects.filter(pk=tenant.pk).update(billing_restricted=True)
    assert browser.post("/console/numbers/connect", follow=True).status_code == 200
    assert not ConnectSession.objects.exists()


def test_a_number_is_refreshed_with_its_health_and_registered(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    PhoneNumber.objects.filter(pk=number.pk).update(verified_name="The former name")
    page = browser.post(f"/console/numbers/{number.phone_number_id}/refresh").content.decode()
    assert "Can send" in page
    assert "The former name" not in page
    PhoneNumber.objects.filter(pk=number.pk).update(registered=False, connection_detail="not_registered")
    for pin in ("12", "1234567", "12345x"):
        wrong = browser.post(f"/console/numbers/{number.phone_number_id}/register", {"pin": pin})
        assert wrong.status_code == 400
        assert "A PIN has six digits." in wrong.content.decode()
    answer = browser.post(f"/console/numbers/{number.phone_number_id}/register", {"pin": ""}, follow=True)
    assert "The number is registered." in answer.content.decode()


def test_the_owner_sets_a_pin_in_place_of_a_generated_one(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    """Nobody knows a PIN that the service generated for a connect session or for a form without a PIN."""
    PhoneNumber.objects.filter(pk=number.pk).update(pin_is_untold=True)
    path = f"/console/numbers/{number.phone_number_id}"
    assert f'action="{path}/two-step"' in browser.get(path).content.decode()
    for pin in ("", "12345x"):
        wrong = browser.post(f"{path}/two-step", {"pin": pin})
        assert wrong.status_code == 400
        assert 'aria-invalid="true"' in wrong.content.decode()
    answer = browser.post(f"{path}/two-step", {"pin": "314159"}, follow=True).content.decode()
    assert "The PIN is set." in answer
    assert "314159" not in answer
    number.refresh_from_db()
    assert (number.pin, number.pin_is_untold) == ("314159", False)
    assert simulator.number(number.waba_id, number.phone_number_id)["pin"] == "314159"
    PhoneNumber.objects.filter(pk=number.pk).update(coexistence=True)
    assert f'action="{path}/two-step"' not in browser.get(path).content.decode()


def test_what_the_platform_refuses_is_a_sentence(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    simulator.control("PATCH", f"phone_numbers/{number.phone_number_id}", {"pin": "111111"})
    path = f"/console/numbers/{number.phone_number_id}/register"
    page = browser.post(path, {"pin": "222222"}, follow=True).content.decode()
    assert "Meta refused:" in page
    number.refresh_from_db()
    assert number.pin != "222222"


def test_a_number_is_released_by_typing_its_id(browser: Client, number: PhoneNumber) -> None:
    path = f"/console/numbers/{number.phone_number_id}/release"
    assert browser.get(path).status_code == 200
    assert browser.post(path, {"phone_number_id": "1"}).status_code == 400
    assert PhoneNumber.objects.exists()
    assert browser.post(path, {"phone_number_id": number.phone_number_id}).status_code == 302
    assert not PhoneNumber.objects.exists()


def test_another_tenant_and_the_other_environment_see_no_number(
    browser: Client, number: PhoneNumber, stranger: Client
) -> None:
    browser.post("/console/preferences", {"environment": "test"})
    path = f"/console/numbers/{number.phone_number_id}"
    for client in (stranger, browser):
        assert number.display_phone_number not in text(client, "/console/numbers")
        assert client.get(path).status_code == 404
        for action in ("refresh", "subscribe", "register"):
            assert client.post(f"{path}/{action}").status_code == 404
        assert client.post(f"{path}/release", {"phone_number_id": number.phone_number_id}).status_code == 404
    assert PhoneNumber.objects.filter(pk=number.pk).exists()


def test_a_subscription_is_repaired_or_its_failure_explained(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    PhoneNumber.objects.update(connection_state="disconnected", connection_detail="not_subscribed")
    path = f"/console/numbers/{number.phone_number_id}/subscribe"
    for fault, words in (
        ({"action": "reset"}, "Meta did not answer. Try again in a minute."),
        ({"action": "error", "code": 131031}, "Meta refused: (#131031) Business Account locked"),
        ({"action": "slow", "ms": 1}, "The account sends its events to the gateway again."),
    ):
        simulator.faults({**fault, "match": {"path": "/subscribed_apps$"}})
        assert words in browser.post(path, follow=True).content.decode(), fault
    number.refresh_from_db()
    assert number.connection_detail != "not_subscribed"


def test_flows_are_turned_on_changed_and_turned_off(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"/console/numbers/{number.phone_number_id}/flows"

    def posted(do: str, **fields: str) -> tuple[str, list[str]]:
        """The page that follows, and the secrets that it shows."""
        answer = browser.post(path, {"do": do, **fields}, follow=True)
        assert "no-store" in answer["Cache-Control"]
        page = html.unescape(answer.content.decode())
        return page, re.findall(r'id="new-secret">([^<]+)', page)

    assert "Create keys and turn on" in text(browser, path)
    page, _ = posted("set", url="ftp://example.com/")
    assert 'class="errorlist"' in page
    assert not FlowEndpoint.objects.exists()
    _, [secret] = posted("set", url="https://example.com/flows")
    row = FlowEndpoint.objects.get()
    assert (row.url, row.secret) == ("https://example.com/flows", secret)
    assert secret not in text(browser, path)
    page, secrets = posted("set", url="https://example.com/more")
    assert ("The address of your server is saved." in page, secrets) == (True, [])
    uploaded = FlowEndpoint.objects.get().key_uploaded_at
    simulator.faults({"action": "error", "code": 2, "times": 1, "match": {"path": "encryption"}})
    assert "Meta refused" in posted("key", form_id="f1")[0]
    page, secrets = posted("key", form_id="f1")
    assert "was already sent" in posted("key", form_id="f1")[0]
    assert ("A new key pair is created" in page, secrets) == (True, [])
    _, [second] = posted("secret", form_id="f2")
    assert posted("secret", form_id="f2")[1] == []
    row = FlowEndpoint.objects.get()
    assert (row.url, row.secret) == ("https://example.com/more", second)
    assert second != secret
    assert row.key_uploaded_at != uploaded
    assert "the previous secret also signs until" in text(browser, path)
    FlowEndpoint.objects.update(previous_secret_expires_at=now())
    assert "previous secret" not in text(browser, path)
    assert "Nothing was changed." in posted("nonsense")[0]
    assert "Flows are turned off for this number." in posted("delete")[0]
    assert not FlowEndpoint.objects.exists()


def test_the_business_profile_is_shown_and_changed(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"/console/numbers/{number.phone_number_id}/profile"
    assert "Business profile" in text(browser, path)
    typed = {"about": "Kites & threads", "website": "https://kites.example/", "vertical": "RETAIL"}
    assert "Saved." in browser.post(path, typed, follow=True).content.decode()
    page = text(browser, path)
    for value in ("Kites & threads", "https://kites.example/", "Shopping and retail"):
        assert value in page
    # The kind of business can be removed again. The other fields stay.
    browser.post(path, typed | {"vertical": "", "address": "1 MG Road"})
    page = text(browser, path)
    assert 'value="RETAIL" selected' not in page
    assert "1 MG Road" in page
    assert "Kites & threads" in page


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ({}, {}),
        ({"about": "Kites"}, {"about": "Kites"}),
        ({"description": "Kites\r\nand more"}, {"description": "Kites\nand more"}),
        ({"about": "", "address": "1 MG Road"}, {"about": "", "address": "1 MG Road"}),
        ({"vertical": "APPAREL"}, {"vertical": "APPAREL"}),
        ({"vertical": ""}, {"vertical": "UNDEFINED"}),
        ({"second_website": ""}, {"websites": ["https://a.example/"]}),
        (
            {"second_website": "https://c.example/"},
            {"websites": ["https://a.example/", "https://c.example/"]},
        ),
        ({"website": "c.example", "second_website": ""}, {"websites": ["https://c.example"]}),
        ({"website": "", "second_website": ""}, {"websites": []}),
    ],
)
def test_only_what_was_changed_in_a_business_profile_is_sent(
    typed: dict[str, str], sent: dict[str, object]
) -> None:
    stored = {
        "about": "Shop",
        "description": "Kites\nand threads",
        "vertical": "RETAIL",
        "websites": ["https://a.example/", "https://b.example/"],
    }
    unchanged = {
        "about": "Shop",
        "description": "Kites\r\nand threads",
        "vertical": "RETAIL",
        "website": "https://a.example/",
    }
    form = ProfileForm.of(stored, {**unchanged, "second_website": "https://b.example/", **typed})
    assert form.is_valid()
    assert form.has_changed() is bool(sent)
    assert orjson.loads(form.body()) == {"messaging_product": "whatsapp", **sent}


def test_an_earlier_page_of_a_business_profile_undoes_no_change(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"/console/numbers/{number.phone_number_id}/profile"
    browser.post(path, {"description": "Kites", "website": "https://a.example/"})
    shown = dict(re.findall(r'name="(initial-[^"]+)" value="([^"]*)"', text(browser, path)))
    fields = {name.removeprefix("initial-"): value for name, value in shown.items()}
    # A colleague changes the profile.
    browser.post(path, {"description": "Kites and threads", "website": "https://b.example/"})
    typed = {"address": "1 MG Road", "second_website": "https://c.example/"}
    assert browser.post(path, shown | fields | typed).status_code == 302
    page = text(browser, path)
    for value in ("Kites and threads", "1 MG Road", "https://b.example/", "https://c.example/"):
        assert value in page, value
    assert "https://a.example/" not in page


def test_a_business_profile_that_the_platform_refuses_keeps_what_was_typed(
    browser: Client, number: PhoneNumber, simulator: RunningSimulator
) -> None:
    path = f"/console/numbers/{number.phone_number_id}/profile"
    answer = browser.post(path, {"email": "nonsense", "address": "1 MG Road"})
    assert answer.status_code == 400
    browser.post(path, {"about": "Kites"})
    # Meta rejects an empty line.
    page = html.unescape(browser.post(path, {"about": "", "address": "2 MG Road"}).content.decode())
    assert "Meta refused" in page
    assert "2 MG Road" in page


def test_a_business_profile_that_cannot_be_read_is_not_shown_empty(
    browser: Client, number: PhoneNumber, settings: Settings
) -> None:
    settings.META_GRAPH_URL = settings.SANDBOX_GRAPH_URL = "http://127.0.0.1:9"
    answer = browser.get(f"/console/numbers/{number.phone_number_id}/profile", follow=True)
    assert "did not answer" in answer.content.decode()
    assert "What Meta says" in answer.content.decode()


@pytest.mark.parametrize(
    ("level", "coexistence", "shown"),
    [
        ("HIGH", False, "High: up to 1,000 messages a second"),
        ("standard", False, "Standard: 80 messages a second"),
        ("STANDARD", True, "20 messages a second"),
        ("HIGH", True, "20 messages a second"),
        ("NOT_APPLICABLE", False, "–"),
        (None, False, "–"),
        ("TURBO", False, "turbo"),
    ],
)
def test_a_number_has_the_throughput_of_its_level_or_of_the_app_beside_it(
    browser: Client, number: PhoneNumber, level: str | None, coexistence: bool, shown: str
) -> None:
    PhoneNumber.objects.update(throughput_level=level, coexistence=coexistence)
    page = text(browser, f"/console/numbers/{number.phone_number_id}")
    assert f"<dt>Throughput</dt><dd>{shown}</dd>" in page


def test_the_card_of_numbers_names_those_that_cannot_send(
    browser: Client, tenant: Tenant, simulator: RunningSimulator
) -> None:
    numbers = [connected_number(tenant, simulator.account()) for _ in range(5)]
    for number, state in ((numbers[0], "pending"), (numbers[1], "disconnected")):
        PhoneNumber.objects.filter(pk=number.pk).update(connection_state=state)
    card = text(browser, "/console").partition(">of 5 connected")[2]
    names = [number.phone_number_id for number in (numbers[0], numbers[1], numbers[4])]
    places = [card.index(f'/console/numbers/{name}"') for name in names]
    assert places == sorted(places)
    assert numbers[3].phone_number_id not in card
