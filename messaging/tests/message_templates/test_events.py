"""Meta's notifications about templates. The tenant gets an event, and the mirror is updated at once."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from gateway.clock import now
from messaging.message_templates import mirror
from messaging.models import MessageTemplate, TemplateMirror
from messaging.tests.incoming import notification, number_of, post
from phone_numbers.models import PhoneNumber
from tenants.models import Tenant
from tests.fixtures import Api
from webhooks.models import Event

pytestmark = pytest.mark.django_db(transaction=True)

WABA, OTHER_WABA = "100200300400500", "100200300400501"
ID = 9223372036854775807
"""An id that is too large for a number in JavaScript."""


@pytest.fixture
def number(tenant: Tenant) -> PhoneNumber:
    """A number whose account has one pending template."""
    number = number_of(tenant, waba_id=WABA, phone_number_id="200300400500600")
    mirror.store_list(
        number.account,
        [
            {
                "id": str(ID),
                "name": "order_update",
                "language": "en_US",
                "status": "PENDING",
                "category": "UTILITY",
                "components": [{"type": "BODY", "text": "Hello"}],
            }
        ],
        read_at=now(),
    )
    TemplateMirror.objects.update(next_sync_at=now() + timedelta(hours=6))
    return number


def notify(field: str, *, waba_id: str = WABA, at: int = 1793500000, **value: Any) -> None:
    """Post a notification about one template."""
    named = {
        "message_template_id": ID,
        "message_template_name": "order_update",
        "message_template_language": "en-US",
    }
    change = {"field": field, "value": {name: v for name, v in {**named, **value}.items() if v is not ...}}
    assert post(notification((waba_id, [change]), time=at)).status_code == 200


def listed(api: Api) -> dict[str, Any]:
    [template] = api.get("/v1/templates").json()["data"]
    return dict(template)


def read_again_soon() -> bool:
    return bool(TemplateMirror.objects.get(account__waba_id=WABA).next_sync_at < now() + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ("APPROVED", "APPROVED"),
        ("REJECTED", "REJECTED"),
        ("PAUSED", "PAUSED"),
        ("DISABLED", "DISABLED"),
        ("REINSTATED", "APPROVED"),
        ("UNLOCKED", "APPROVED"),
        ("PENDING_DELETION", "PENDING_DELETION"),
        ("FLAGGED", "PENDING"),
        ("SOMETHING_NEW", "PENDING"),
    ],
)
def test_a_status_shows_at_once_and_is_read_again_soon(
    api: Api, number: PhoneNumber, event: str, status: str
) -> None:
    notify("message_template_status_update", event=event, reason="NONE")
    assert listed(api)["status"] == status
    assert listed(api)["components"] == [{"type": "BODY", "text": "Hello"}]
    assert [row["id"] for row in api.get(f"/v1/templates?status={status}").json()["data"]] == [str(ID)]
    assert Event.objects.get().type == "template.status"
    assert read_again_soon()


def test_each_status_of_meta_is_shown_as_it_is_or_as_approved() -> None:
    back = {"REINSTATED", "UNLOCKED", "UNARCHIVED"}
    same = {"APPROVED", "REJECTED", "PENDING", "PAUSED", "DISABLED", "IN_APPEAL", "PENDING_DELETION"}
    same |= {"LOCKED", "ARCHIVED", "LIMIT_EXCEEDED"}
    assert {**{word: word for word in same}, **dict.fromkeys(back, "APPROVED")} == mirror.STATUSES


def test_a_status_changes_the_category_that_it_names(api: Api, number: PhoneNumber) -> None:
    notify("message_template_status_update", event="APPROVED", message_template_category="MARKETING")
    assert (listed(api)["status"], listed(api)["category"]) == ("APPROVED", "MARKETING")
    notify("message_template_status_update", at=1793500100, event="PAUSED")
    assert listed(api)["category"] == "MARKETING", "kept without one"


def test_a_rejection_shows_its_reason(api: Api, number: PhoneNumber) -> None:
    notify("message_template_status_update", event="REJECTED", reason="SCAM")
    assert (listed(api)["status"], listed(api)["rejected_reason"]) == ("REJECTED", "SCAM")
    notify("message_template_status_update", at=1793500100, event="APPROVED", reason=None)
    assert (listed(api)["status"], listed(api)["rejected_reason"]) == ("APPROVED", "NONE")


def test_a_deletion_takes_it_off_the_list(api: Api, number: PhoneNumber) -> None:
    notify("message_template_status_update", event="DELETED")
    assert api.get("/v1/templates").json()["data"] == []
    notify("message_template_status_update", at=1793500100, event="PENDING_DELETION")
    assert api.get("/v1/templates").json()["data"] == []


def test_quality(api: Api, number: PhoneNumber) -> None:
    notify("message_template_quality_update", previous_quality_score="GREEN", new_quality_score="YELLOW")
    assert listed(api)["quality_score"] == {"score": "YELLOW"}
    assert Event.objects.get().type == "template.quality"


def test_the_notice_of_a_category_and_its_change(api: Api, number: PhoneNumber) -> None:
    notify("template_category_update", new_category="UTILITY", correct_category="MARKETING")
    assert (listed(api)["category"], listed(api)["correct_category"]) == ("UTILITY", "MARKETING")
    notify("template_category_update", at=1793500100, previous_category="UTILITY", new_category="MARKETING")
    assert (listed(api)["category"], listed(api)["previous_category"]) == ("MARKETING", "UTILITY")
    assert len(api.get("/v1/templates?category=MARKETING").json()["data"]) == 1


def test_new_components_are_read_from_the_upstream(number: PhoneNumber) -> None:
    notify("message_template_components_update", message_template_element="New text")
    assert read_again_soon()
    assert Event.objects.get().type == "meta.other"


def test_a_template_that_is_not_known_yet_is_read_from_the_upstream(api: Api, number: PhoneNumber) -> None:
    notify(
        "message_template_status_update", message_template_id=4, message_template_name="x", event="APPROVED"
    )
    assert read_again_soon()
    assert listed(api)["status"] == "PENDING"


def test_without_an_id_the_name_and_language_select_the_template(api: Api, number: PhoneNumber) -> None:
    notify("message_template_status_update", message_template_id=..., event="APPROVED")
    assert listed(api)["status"] == "APPROVED"


def test_a_repeat_that_comes_late_does_not_undo_what_came_after(api: Api, number: PhoneNumber) -> None:
    notify("message_template_status_update", event="APPROVED")
    notify("message_template_status_update", at=1793500100, event="PAUSED")
    notify("message_template_status_update", event="APPROVED")
    assert listed(api)["status"] == "PAUSED"


def test_another_accounts_event_does_not_touch_it(
    api: Api, number: PhoneNumber, other_tenant: Tenant
) -> None:
    number_of(other_tenant, waba_id=OTHER_WABA, phone_number_id="200300400500601")
    notify("message_template_status_update", waba_id=OTHER_WABA, event="DISABLED")
    assert listed(api)["status"] == "PENDING"
    assert MessageTemplate.objects.count() == 1


def test_a_template_whose_change_fails_is_read_again(number: PhoneNumber, tenant: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE division_by_zero; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER fails BEFORE UPDATE ON messaging_messagetemplate FOR EACH ROW EXECUTE FUNCTION fails()"
        )
    try:
        notify("message_template_status_update", event="REJECTED")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION fails() CASCADE")
    assert Event.objects.filter(type="template.status").count() == 1
    assert read_again_soon()
