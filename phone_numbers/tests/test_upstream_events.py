"""Notifications about accounts and numbers, and the change that each causes (upstream facts 3.9 and 3.10)."""

from typing import Any

import pytest

from gateway.clock import now
from phone_numbers import sync
from phone_numbers.connection import state
from phone_numbers.models import AppData, BusinessAccount, PhoneNumber
from phone_numbers.tests.reading import moves, rows_besides
from phone_numbers.tests.test_connection import make_account, make_number, state_of
from tenants.models import Tenant
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def number(tenant: Tenant, endpoint: Endpoint) -> PhoneNumber:
    """A connected number."""
    number = make_number(make_account(tenant))
    state.recompute(tenant_id=tenant.id)
    return number


def notify(number: PhoneNumber, value: dict[str, Any], field: str = "account_update") -> None:
    sync.apply_notification(
        field=field,
        value=value,
        waba_id=number.account.waba_id,
        phone_number_id=number.phone_number_id,
    )


DISABLE = {
    "event": "DISABLED_UPDATE",
    "ban_info": {"waba_ban_state": "DISABLE", "waba_ban_date": "May 1, 2026"},
}


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({"event": "ACCOUNT_DELETED"}, "account_removed"),
        ({"event": "PARTNER_REMOVED", "waba_info": {"waba_id": "1"}}, "account_removed"),
        ({"event": "PARTNER_REMOVED", "phone_number": "919800000001"}, "account_removed"),
        (
            {"event": "PARTNER_APP_UNINSTALLED", "waba_info": {"partner_app_id": 900100200300400}},
            "account_removed",
        ),
        ({"event": "PARTNER_APP_UNINSTALLED"}, "account_removed"),
        ({"event": "ACCOUNT_OFFBOARDED"}, "account_removed"),
        (DISABLE, "account_restricted"),
        (
            {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": ["SCHEDULE_FOR_DISABLE", "DISABLE"]}},
            "account_restricted",
        ),
    ],
)
def test_what_takes_the_account_away_disconnects(
    number: PhoneNumber, tenant: Tenant, value: dict[str, Any], detail: str
) -> None:
    notify(number, value)
    assert state_of(number) == ("disconnected", detail)
    assert moves(tenant)[-1] == ("connected", "disconnected", detail)
    notify(number, value)
    assert len(moves(tenant)) == 2


@pytest.mark.parametrize(
    "value",
    [
        {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "SCHEDULE_FOR_DISABLE"}},
        {"event": "PARTNER_APP_UNINSTALLED", "partner_app_id": "1"},
        {"event": "PARTNER_APP_UNINSTALLED", "waba_info": {"partner_app_id": "1"}},
        {"event": "PARTNER_REMOVED", "phone_number": "919899999999"},
        {"event": "ACCOUNT_RESTRICTION", "restriction_info": []},
        {"event": "VERIFIED_ACCOUNT"},
        {"event": "SOMETHING_NEW"},
        {"event": "DISABLED_UPDATE", "ban_info": "?"},
        {},
    ],
)
def test_what_takes_nothing_away_leaves_it_connected(number: PhoneNumber, value: dict[str, Any]) -> None:
    notify(number, value)
    assert state_of(number) == ("connected", None)


def test_a_reinstated_account_is_connected_again(number: PhoneNumber) -> None:
    notify(number, DISABLE)
    notify(number, {"event": "ACCOUNT_RECONNECTED"})
    assert state_of(number) == ("disconnected", "account_restricted")
    notify(number, {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": "REINSTATE"}})
    assert state_of(number) == ("connected", None)


def test_a_ban_of_a_removed_account_leaves_it_removed(number: PhoneNumber, tenant: Tenant) -> None:
    """Notifications have no order, so an older ban may arrive after the removal."""
    notify(number, {"event": "ACCOUNT_DELETED"})
    for ban in ("DISABLE", "REINSTATE"):
        notify(number, {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": ban}})
        assert state_of(number) == ("disconnected", "account_removed")
    assert len(moves(tenant)) == 2
    notify(number, {"event": "ACCOUNT_RECONNECTED"})
    assert state_of(number) == ("connected", None)


def test_offboarding_concerns_the_coexistence_numbers_alone(number: PhoneNumber, tenant: Tenant) -> None:
    shared = make_number(number.account, "919800000009")
    PhoneNumber.objects.filter(pk=shared.pk).update(coexistence=True)
    state.recompute(tenant_id=tenant.id)
    notify(number, {"event": "ACCOUNT_OFFBOARDED"})
    assert state_of(shared) == ("disconnected", "account_removed")
    assert state_of(number) == ("connected", None)
    notify(number, {"event": "ACCOUNT_RECONNECTED"})
    assert state_of(shared) == ("connected", None)


@pytest.mark.parametrize("taken_away", [None, "account_removed", "account_restricted"])
def test_a_notification_changes_nothing_of_other_accounts(
    number: PhoneNumber, tenant: Tenant, other_tenant: Tenant, taken_away: str | None
) -> None:
    """The other accounts have numbers with the same digits."""
    for each in (tenant, other_tenant):
        neighbour = make_number(make_account(each), number.digits)
        AppData.objects.create(number=neighbour, kind="history", ends_at=now())
    PhoneNumber.objects.exclude(pk=number.pk).update(taken_away=taken_away, coexistence=True)
    BusinessAccount.objects.exclude(pk=number.account_id).update(taken_away=taken_away)
    for each in (tenant, other_tenant):
        state.recompute(tenant_id=each.id)
    before = rows_besides(number)
    for event in ("ACCOUNT_DELETED", "PARTNER_REMOVED", "ACCOUNT_OFFBOARDED", "ACCOUNT_RECONNECTED"):
        notify(number, {"event": event})
        notify(number, {"event": event, "phone_number": number.digits})
    for state_of_ban in ("DISABLE", "REINSTATE"):
        notify(number, {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": state_of_ban}})
    notify(number, {"max_daily_conversations_per_business": 2000}, "business_capability_update")
    notify(number, {"current_limit": "TIER_10K"}, "phone_number_quality_update")
    notify(number, {"decision": "APPROVED", "requested_verified_name": "Asha"}, "phone_number_name_update")
    assert rows_besides(number) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("account_update", {"event": "PARTNER_REMOVED", "phone_number": "+91 98000 00001"}),
        ("account_update", {"event": "ACCOUNT_OFFBOARDED", "phone_number": "919800000001"}),
        ("account_update", {"event": "ACCOUNT_RECONNECTED", "phone_number": "+91 98000 00001"}),
        ("phone_number_quality_update", {"current_limit": "TIER_10K"}),
        ("phone_number_name_update", {"decision": "APPROVED", "requested_verified_name": "Asha"}),
    ],
)
def test_a_notification_about_one_number_changes_no_other_of_its_account(
    number: PhoneNumber, tenant: Tenant, field: str, value: dict[str, Any]
) -> None:
    sibling = make_number(number.account, "919800000002")
    AppData.objects.create(number=sibling, kind="history", ends_at=now())
    gone = "account_removed" if value.get("event") == "ACCOUNT_RECONNECTED" else None
    PhoneNumber.objects.update(coexistence=True, taken_away=gone)
    BusinessAccount.objects.update(taken_away=gone)
    state.recompute(tenant_id=tenant.id)
    before, own = rows_besides(number), PhoneNumber.objects.filter(pk=number.pk).values().get()
    notify(number, value, field)
    assert rows_besides(number) == before
    assert PhoneNumber.objects.filter(pk=number.pk).values().get() != own
    assert BusinessAccount.objects.get().taken_away == gone


def test_a_removal_that_names_no_number_takes_all_with_their_app_data(number: PhoneNumber) -> None:
    shared = make_number(number.account, "919800000009")
    PhoneNumber.objects.filter(pk=shared.pk).update(coexistence=True)
    AppData.objects.create(number=shared, kind="history", ends_at=now())
    notify(number, {"event": "PARTNER_REMOVED"})
    assert [state_of(each) for each in (number, shared)] == [("disconnected", "account_removed")] * 2
    assert BusinessAccount.objects.get().taken_away == "account_removed"
    assert not AppData.objects.exists()


def test_other_accounts_are_untouched(number: PhoneNumber, other_tenant: Tenant) -> None:
    sync.apply_notification(field="account_update", value={"event": "ACCOUNT_DELETED"}, waba_id="404")
    foreign = make_number(make_account(other_tenant))
    notify(foreign, {"event": "ACCOUNT_DELETED"})
    assert state_of(number) == ("connected", None)


@pytest.mark.parametrize(
    ("field", "value", "tier"),
    [
        ("phone_number_quality_update", {"event": "UPGRADE", "current_limit": "TIER_10K"}, "TIER_10K"),
        (
            "phone_number_quality_update",
            {"event": "ONBOARDING", "max_daily_conversations_per_business": "TIER_2K"},
            "TIER_2K",
        ),
        *(
            ("business_capability_update", {"max_daily_conversations_per_business": count}, tier)
            for count, tier in (
                (250, "TIER_250"),
                (1000, "TIER_1K"),
                (2000, "TIER_2K"),
                (10_000, "TIER_10K"),
                (100_000, "TIER_100K"),
                (-1, "TIER_UNLIMITED"),
                (3, None),
            )
        ),
        ("business_capability_update", {"max_daily_conversation_per_phone": "TIER_100K"}, "TIER_100K"),
        ("business_capability_update", {"max_phone_numbers_per_business": 2}, None),
        ("phone_number_quality_update", {"event": "FLAGGED", "current_limit": 7}, None),
        (
            "phone_number_quality_update",
            {"event": "THROUGHPUT_UPGRADE", "current_limit": "TIER_UNLIMITED"},
            None,
        ),
    ],
)
def test_a_new_messaging_limit_is_stored(
    number: PhoneNumber, field: str, value: dict[str, Any], tier: str | None
) -> None:
    notify(number, value, field)
    number.refresh_from_db()
    assert number.messaging_limit_tier == tier


def test_a_higher_throughput_is_stored_and_changes_no_messaging_limit(number: PhoneNumber) -> None:
    notify(number, {"event": "UPGRADE", "current_limit": "TIER_10K"}, "phone_number_quality_update")
    upgrade = {"event": "THROUGHPUT_UPGRADE", "current_limit": "TIER_UNLIMITED"}
    notify(number, upgrade, "phone_number_quality_update")
    number.refresh_from_db()
    assert (number.throughput_level, number.messaging_limit_tier) == ("HIGH", "TIER_10K")


def test_an_approved_name_is_stored(number: PhoneNumber) -> None:
    notify(number, {"decision": "REJECTED", "requested_verified_name": "No"}, "phone_number_name_update")
    notify(number, {"decision": "APPROVED", "requested_verified_name": "Asha"}, "phone_number_name_update")
    number.refresh_from_db()
    assert (number.verified_name, number.name_status) == ("Asha", "APPROVED")


@pytest.mark.parametrize("field", [field for field in sync.HANDLERS if field != "account_update"])
def test_each_such_notification_has_the_account_read_again_after_the_commit(
    number: PhoneNumber, django_capture_on_commit_callbacks: Any, field: str
) -> None:
    BusinessAccount.objects.update(sync_lease_until=None)
    with django_capture_on_commit_callbacks(execute=True):
        notify(number, {}, field)
    assert BusinessAccount.objects.get().sync_lease_until is not None


def test_message_fields_are_passed_over_without_a_query(
    number: PhoneNumber, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        sync.apply_notification(field="messages", value={}, waba_id="1")
