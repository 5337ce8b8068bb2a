"""Golden files of notifications: one for each kind and variant. No kind is missing.

`golden/<field>__<variant>.json` is a notification. `….expected.json` has its events.
"""

import json
from typing import Any

import msgspec
import orjson
import pytest

from gateway.upstream.notifications.normalise import FIELDS
from gateway.upstream.tests.notifications import BODIES, GOLDEN, NAMES, at_path, drafts_of


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.expected.json").read_bytes())
    drafts = drafts_of(BODIES[name])
    for draft, wanted in zip(drafts, expected, strict=True):
        # Compares bytes, because the order of members is part of the contract.
        assert draft.data == orjson.dumps(wanted.pop("data"))
        columns = msgspec.structs.asdict(draft)
        del columns["data"]
        columns["message"] = without_none(draft.message._asdict()) if draft.message else None
        assert without_none(columns) == wanted


def without_none(members: dict[str, Any]) -> dict[str, Any]:
    """The members of a draft or of its message that are not None."""
    return {name: value for name, value in members.items() if value is not None}


@pytest.mark.parametrize("name", NAMES)
def test_golden_raw_path_leads_to_the_item(name: str) -> None:
    parsed = json.loads(BODIES[name])
    for draft in drafts_of(BODIES[name]):
        assert draft.raw_path.startswith(f"entry[{draft.entry}].changes[{draft.change}]")
        item = at_path(parsed, draft.raw_path)
        if draft.wamid is not None:
            assert item["id"] == draft.wamid


# The fields to which the app subscribes, and others that Meta has sent.
SUBSCRIBED = """
messages message_template_status_update message_template_quality_update message_template_components_update
template_category_update phone_number_quality_update phone_number_name_update account_update account_alerts
account_review_update account_settings_update business_capability_update security user_preferences
smb_message_echoes smb_app_state_sync history flows calls group_lifecycle_update group_participants_update
group_settings_update group_status_update payment_configuration_update partner_solutions automatic_events
business_username_update standby messaging_handovers template_correct_category_detection
"""
SEEN_BESIDES = """
message_echoes user_id_update business_status_update business_username_updates group_participant_update
tracking_events campaign_status_update a_field_of_tomorrow
"""


def test_every_field_has_a_golden_file() -> None:
    covered = {name.split("__")[0] for name in NAMES}
    assert covered == {*SUBSCRIBED.split(), *SEEN_BESIDES.split()}
    assert set(FIELDS) == covered - {"a_field_of_tomorrow"}


EVERY_TYPE = """
message.inbound message.status message.error message.echo message.history user.preferences template.status
template.quality
template.category number.quality number.name account.update account.alerts account.capability account.security
meta.other
"""
# A prefix of dedupe keys for each kind of identity. Identities decide when two items are the same event.
EVERY_KEY = """
msg status payment err click meta echo history hist contact pref uid tpl num acct alert cap sec uname call group standby
"""


def test_every_event_type_and_kind_of_key_has_a_golden_file() -> None:
    drafts = [draft for body in BODIES.values() for draft in drafts_of(body)]
    assert {draft.type for draft in drafts} == set(EVERY_TYPE.split())
    assert {draft.dedupe_key.split(":")[0] for draft in drafts} == set(EVERY_KEY.split())


def golden_values(field: str, member: str) -> set[str]:
    """All values of `member` inside the golden notifications of a field."""
    found: set[str] = set()

    def collect(pairs: list[tuple[str, Any]]) -> None:
        found.update(value for name, value in pairs if name == member and isinstance(value, str))

    for name, body in BODIES.items():
        if name.split("__")[0] == field:
            json.loads(body, object_pairs_hook=collect)
    return found


@pytest.mark.parametrize(
    ("field", "member", "values"),
    [
        (
            "messages",
            "type",
            "text image video audio document sticker location contacts interactive button order reaction system"
            " unsupported edit revoke request_welcome button_reply list_reply nfm_reply call_permission_reply"
            " user_changed_number user_changed_user_id customer_changed_number user_identity_changed payment",
        ),
        ("messages", "status", "sent delivered read played failed deleted warning captured"),
        (
            "message_template_status_update",
            "event",
            "APPROVED REJECTED PENDING PAUSED DISABLED FLAGGED IN_APPEAL PENDING_DELETION DELETED REINSTATED"
            " LOCKED UNLOCKED ARCHIVED UNARCHIVED LIMIT_EXCEEDED",
        ),
        (
            "account_update",
            "event",
            "ACCOUNT_DELETED ACCOUNT_RESTRICTION ACCOUNT_VIOLATION DISABLED_UPDATE"
            " AUTH_INTL_PRICE_ELIGIBILITY_UPDATE BUSINESS_PRIMARY_LOCATION_COUNTRY_UPDATE"
            " VOLUME_BASED_PRICING_TIER_UPDATE PARTNER_ADDED PARTNER_REMOVED PARTNER_APP_INSTALLED"
            " PARTNER_APP_UNINSTALLED PARTNER_CLIENT_CERTIFICATION_STATUS_UPDATE"
            " PARTNER_CLIENT_CERTIFICATION_NEEDED AD_ACCOUNT_LINKED MM_LITE_TERMS_SIGNED ACCOUNT_OFFBOARDED"
            " ACCOUNT_RECONNECTED VERIFIED_ACCOUNT",
        ),
        ("security", "event", "PIN_CHANGED PIN_RESET_REQUEST PIN_REQUEST_SUCCESS"),
        (
            "flows",
            "event",
            "FLOW_STATUS_CHANGE CLIENT_ERROR_RATE ENDPOINT_ERROR_RATE ENDPOINT_LATENCY ENDPOINT_AVAILABILITY"
            " FLOW_VERSION_EXPIRY_WARNING",
        ),
        (
            "calls",
            "event",
            "connect call_created terminate call_recording_available call_transcription_available",
        ),
        ("user_preferences", "value", "stop resume signup"),
    ],
)
def test_every_variant_has_a_golden_file(field: str, member: str, values: str) -> None:
    assert set(values.split()) <= golden_values(field, member)
