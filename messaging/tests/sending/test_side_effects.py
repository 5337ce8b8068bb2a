"""Side effects of notifications, from the signed POST to the changed number and its events."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from gateway.clock import now
from messaging.notifications import incoming
from messaging.notifications.incoming import EFFECTS
from messaging.tests.incoming import events_of, notification, number_of, post, text_change
from phone_numbers import sync
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tests.conftest import verified_endpoint
from phone_numbers.tests.reading import moves
from tenants.models import Tenant
from tests.fixtures import Api, assert_error
from webhooks.models import Delivery

pytestmark = pytest.mark.django_db(transaction=True)

WABA, NUMBER, DIGITS = "100200300400500", "200300400500600", "919800000001"
PARTNER = "999888777666555"


@pytest.fixture
def number(tenant: Tenant) -> PhoneNumber:
    """A connected number of `tenant`, which has a verified endpoint."""
    verified_endpoint(tenant)
    number = number_of(tenant, waba_id=WABA, phone_number_id=NUMBER, digits=DIGITS)
    state.recompute(tenant_id=tenant.id)
    return number


def notify(field: str, value: dict[str, Any], *, entry: str = WABA, time: int = 1793500000) -> None:
    """Post a notification with one change."""
    body = notification((entry, [{"field": field, "value": value}]), time=time)
    assert post(body).status_code == 200


DISABLE = {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "DISABLE"}}
REINSTATE = {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "REINSTATE"}}
REMOVED = {"event": "PARTNER_REMOVED", "waba_info": {"waba_id": WABA}}


@pytest.mark.parametrize(
    ("entry", "value", "detail"),
    [
        (WABA, {"event": "ACCOUNT_DELETED"}, "account_removed"),
        (PARTNER, REMOVED, "account_removed"),
        (WABA, {"event": "PARTNER_REMOVED", "phone_number": DIGITS}, "account_removed"),
        (
            PARTNER,
            {"event": "PARTNER_APP_UNINSTALLED", "waba_info": {"waba_id": WABA}},
            "account_removed",
        ),
        (WABA, {"event": "ACCOUNT_OFFBOARDED"}, "account_removed"),
        (WABA, DISABLE, "account_restricted"),
    ],
)
def test_what_takes_an_account_away_disconnects_its_numbers(
    number: PhoneNumber, tenant: Tenant, api: Api, entry: str, value: dict[str, Any], detail: str
) -> None:
    notify("account_update", value, entry=entry)
    assert moves(tenant) == [("connected", "disconnected", detail)]
    cause, consequence = events_of(tenant)
    assert (cause.type, consequence.type) == ("account.update", "number.connection")
    assert (consequence.waba_id, consequence.phone_number_id) == (WABA, NUMBER)
    assert Delivery.objects.filter(event_id=consequence.id).count() == 1
    shown = api.get(f"/v1/numbers/{NUMBER}").json()
    assert (shown["connection_state"], shown["connection_detail"]) == ("disconnected", detail)


@pytest.mark.parametrize(
    ("away", "back"),
    [
        ({"event": "ACCOUNT_OFFBOARDED"}, {"event": "ACCOUNT_RECONNECTED"}),
        (DISABLE, REINSTATE),
    ],
)
def test_what_gives_it_back_connects_them_again(
    number: PhoneNumber, tenant: Tenant, away: dict[str, Any], back: dict[str, Any]
) -> None:
    notify("account_update", away)
    notify("account_update", back, time=1793500100)
    assert [(before, after) for before, after, _ in moves(tenant)] == [
        ("connected", "disconnected"),
        ("disconnected", "connected"),
    ]


def test_a_repeat_that_comes_later_undoes_no_repair(number: PhoneNumber, tenant: Tenant) -> None:
    notify("account_update", DISABLE)
    notify("account_update", REINSTATE, time=1793500100)
    notify("account_update", DISABLE)
    number.refresh_from_db()
    assert number.connection_state == "connected"
    assert len(moves(tenant)) == 2


def test_only_the_account_that_the_change_names_is_touched(
    number: PhoneNumber, tenant: Tenant, other_tenant: Tenant
) -> None:
    verified_endpoint(other_tenant)
    number_of(other_tenant, waba_id="11", phone_number_id="21", digits="919800000009")
    body = notification(
        (PARTNER, [{"field": "account_update", "value": REMOVED}]),
        ("11", [text_change("21", "wamid.1")]),
        time=1793500000,
    )
    assert post(body).status_code == 200
    assert moves(tenant) == [("connected", "disconnected", "account_removed")]
    assert moves(other_tenant) == []


@pytest.mark.parametrize(
    ("field", "value", "column", "stored"),
    [
        (
            "phone_number_quality_update",
            {"display_phone_number": DIGITS, "event": "UPGRADE", "current_limit": "TIER_10K"},
            "messaging_limit_tier",
            "TIER_10K",
        ),
        (
            "phone_number_name_update",
            {
                "display_phone_number": DIGITS,
                "decision": "APPROVED",
                "requested_verified_name": "Asha Traders",
            },
            "verified_name",
            "Asha Traders",
        ),
        (
            "business_capability_update",
            {"max_daily_conversations_per_business": 2000},
            "messaging_limit_tier",
            "TIER_2K",
        ),
    ],
)
def test_what_a_notification_says_of_a_number_is_stored(
    number: PhoneNumber, api: Api, field: str, value: dict[str, Any], column: str, stored: str
) -> None:
    notify(field, value)
    assert api.get(f"/v1/numbers/{NUMBER}").json()[column] == stored


@pytest.mark.parametrize("field", sorted(sync.HANDLERS))
def test_every_hint_schedules_a_sync_of_the_account(number: PhoneNumber, field: str) -> None:
    later = now() + timedelta(days=7)
    BusinessAccount.objects.update(next_sync_at=later)
    notify(field, {"event": "SOMETHING_NEW", "display_phone_number": DIGITS})
    assert BusinessAccount.objects.get().next_sync_at < later


def test_last_event_at_of_the_numbers_concerned(number: PhoneNumber, tenant: Tenant, api: Api) -> None:
    number_of(tenant, waba_id=WABA, phone_number_id="21", digits="919800000009")
    began = now()
    assert post(notification((WABA, [text_change(NUMBER, "wamid.1")]))).status_code == 200
    number.refresh_from_db()
    assert number.last_event_at is not None
    assert number.last_event_at >= began
    assert api.get("/v1/numbers/21").json()["last_event_at"] is None


def test_an_effect_that_fails_loses_no_event(
    number: PhoneNumber, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = now() + timedelta(days=7)
    BusinessAccount.objects.update(next_sync_at=later)
    # An error that really occurs: Postgres rejects U+0000 in text.
    value = {
        "display_phone_number": DIGITS,
        "decision": "APPROVED",
        "requested_verified_name": "Asha\0Traders",
    }
    notify("phone_number_name_update", value)
    assert [event.type for event in events_of(tenant)] == ["number.name"]
    number.refresh_from_db()
    assert number.verified_name is None
    assert BusinessAccount.objects.get().next_sync_at < later


def test_an_unreachable_database_in_an_effect_takes_the_event_with_it(
    number: PhoneNumber, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("deadlock detected")

    monkeypatch.setitem(incoming.EFFECTS, "security", away)
    body = notification((WABA, [{"field": "security", "value": {"event": "PIN_CHANGED"}}]), time=1)
    assert_error(post(body), 503, "service_unavailable")
    assert events_of(tenant) == []


def test_fields_with_effects_are_known_to_the_normaliser() -> None:
    from gateway.upstream.notifications.normalise import FIELDS

    assert set(EFFECTS) <= set(FIELDS)
