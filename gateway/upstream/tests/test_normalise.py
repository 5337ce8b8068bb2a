"""The rules of the normaliser: routes, keys, customers, malformed bodies, JSON that other parsers corrupt."""

import hashlib
import json
from typing import Any

import msgspec
import orjson
import pytest

from gateway.upstream.notifications.change import MOST_BYTES, MOST_EVENTS, MessageFacts
from gateway.upstream.notifications.lossless_json import LARGEST_BODY, MOST_ESCAPES
from gateway.upstream.notifications.normalise import (
    MOST_CHANGES,
    MOST_MEMBERS,
    MOST_OBJECTS,
    EventDraft,
    normalise,
)
from gateway.upstream.tests.notifications import BODIES, changes_of, drafts_of

ENVELOPE: dict[str, Any] = {
    "messaging_product": "whatsapp",
    "metadata": {"phone_number_id": "200300400500600"},
}


def wire(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).replace("/", "\\/").encode()


def notification(field: str, value: object, **entry: object) -> bytes:
    changes = [{"value": value, "field": field}]
    whole = {"id": "100200300400500", **entry, "changes": changes}
    return wire({"object": "whatsapp_business_account", "entry": [whole]})


def one_draft(body: bytes) -> EventDraft:
    (draft,) = drafts_of(body)
    return draft


def message(body: str = "Hi", **members: object) -> dict[str, object]:
    return {"from": "919812345678", "id": "wamid.1", "type": "text", "text": {"body": body}, **members}


# Routes


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("messages__text", (None, "200300400500600", "100200300400500", "919800000001")),
        ("account_update__example_d", ("100200300400500", None, "999888777666555", None)),
        ("messaging_handovers__control_passed", (None, "200300400500600", "100200300400500", "919800000001")),
        ("account_settings_update__calling", (None, "200300400500600", "100200300400500", None)),
        ("phone_number_name_update__rejected", (None, None, "100200300400500", "919800000001")),
        ("account_update__partner_removed_coexistence", (None, None, "100200300400500", "919800000001")),
    ],
)
def test_a_route_carries_every_candidate_for_the_tenant(name: str, route: tuple[str | None, ...]) -> None:
    (change,) = changes_of(BODIES[name])
    assert msgspec.structs.astuple(change.route) == route


def test_each_change_has_its_own_route_and_value() -> None:
    changes = changes_of(BODIES["messages__several_tenants"])
    assert [(change.entry, change.change) for change in changes] == [(0, 0), (0, 1), (1, 0)]
    numbers = [change.route.phone_number_id for change in changes]
    assert numbers == ["200300400500600", "200300400500600", "200300400500699"]

    (change,) = changes_of(BODIES["account_update__example_d"])
    assert change.field == "account_update"
    assert change.value == json.loads(BODIES["account_update__example_d"])["entry"][0]["changes"][0]["value"]


# Keys


def test_an_error_is_known_by_its_notification_and_place() -> None:
    body = BODIES["messages__errors"]
    digest = hashlib.sha256(body).hexdigest()
    assert [draft.dedupe_key for draft in drafts_of(body)] == [f"err:{digest}:0.0.0", f"err:{digest}:0.0.1"]


def test_an_item_without_identity_is_known_by_its_content() -> None:
    canonical = (
        b'{"entry":"100200300400500","field":"novel","item":{"a":{"x":null,"y":2},"b":1},"time":"1793500000"}'
    )
    body = notification("novel", {"b": 1, "a": {"y": 2, "x": None}}, time=1793500000)
    assert one_draft(body).dedupe_key == f"meta:novel:{hashlib.sha256(canonical).hexdigest()}"


def test_the_same_words_at_another_time_are_another_event() -> None:
    value = {"event": "ENDPOINT_AVAILABILITY", "flow_id": "1", "alert_state": "ACTIVATED"}
    keys = {one_draft(notification("flows", value, time=time)).dedupe_key for time in (1, 2, 2)}
    assert len(keys) == 2


def test_items_that_lack_their_identifier_have_distinct_keys() -> None:
    value = {**ENVELOPE, "messages": [message("a", id=None), message("b", id=""), message("b", id=[])]}
    keys = [draft.dedupe_key for draft in drafts_of(notification("messages", value))]
    assert len(set(keys)) == 3
    assert all(key.startswith("msg:") for key in keys)


def test_two_payment_states_of_one_payment_are_two_events() -> None:
    keys = {
        one_draft(BODIES[f"messages__status_payment_{state}"]).dedupe_key for state in ("captured", "failed")
    }
    assert len(keys) == 2


def test_a_huge_identifier_gives_a_bounded_key_and_no_column() -> None:
    def draft(wamid: str) -> EventDraft:
        return one_draft(notification("messages", {**ENVELOPE, "messages": [message(id=wamid)]}))

    long = draft("w" * 300)
    assert long.dedupe_key == f"msg:{hashlib.sha256(b'msg:' + b'w' * 300).hexdigest()}"
    assert long.wamid is None
    assert draft("w" * 251).dedupe_key == "msg:" + "w" * 251
    assert draft("w" * 255).wamid == "w" * 255
    assert json.loads(long.data)["message"]["id"] == "w" * 300
    assert len(one_draft(notification("f" * 300, {})).dedupe_key) < 255


GROUP = {"id": "w", "status": "read", "recipient_type": "group", "recipient_id": "g"}
"""A status of a message to a group. It lacks the participant."""
IDENTITIES: list[tuple[str, dict[str, Any], str, str]] = [
    ("messages", {"messages": [message()]}, "id", "from timestamp type"),
    ("messages", {"statuses": [{"id": "w", "status": "sent"}]}, "id status", "timestamp recipient_id"),
    (
        "messages",
        {"statuses": [{**GROUP, "recipient_participant_id": "91"}]},
        "recipient_participant_id",
        "timestamp",
    ),
    (
        "messages",
        {"statuses": [{**GROUP, "recipient_participant_user_id": "IN.1"}]},
        "recipient_participant_user_id",
        "timestamp",
    ),
    (
        "messages",
        {"user_actions": [{"marketing_messages_link_click_data": {"click_id": "c"}}]},
        "",
        "timestamp",
    ),
    ("message_echoes", {"message_echoes": [message()]}, "id", "to timestamp"),
    ("history", {"messages": [message()]}, "id type", "timestamp from"),
    ("standby", {"standby": {"statuses": [{"id": "w", "status": "sent"}]}}, "id status", "timestamp"),
    ("standby", {"standby": {"messages": [message()]}}, "id", "timestamp"),
    ("calls", {"calls": [{"id": "c", "event": "connect"}]}, "id event", "timestamp"),
    ("calls", {"statuses": [{"id": "c", "status": "RINGING"}]}, "id status", "timestamp"),
    (
        "user_preferences",
        {"user_preferences": [{"wa_id": "91", "category": "c", "value": "stop", "timestamp": "1"}]},
        "wa_id user_id category value timestamp",
        "detail",
    ),
    (
        "user_id_update",
        {"user_id_update": [{"previous_user_id": "IN.1", "user_id": "IN.2"}]},
        "previous_user_id user_id",
        "timestamp wa_id",
    ),
    (
        "message_template_status_update",
        {"message_template_id": 1, "event": "APPROVED"},
        "message_template_id event",
        "reason",
    ),
    (
        "message_template_quality_update",
        {"message_template_id": 1, "previous_quality_score": "RED", "new_quality_score": "GREEN"},
        "message_template_id previous_quality_score new_quality_score",
        "message_template_name",
    ),
    (
        "template_category_update",
        {"message_template_id": 1, "previous_category": "UTILITY", "category_update_timestamp": 5},
        "message_template_id previous_category new_category correct_category category category_update_timestamp",
        "message_template_name",
    ),
    (
        "phone_number_quality_update",
        {"display_phone_number": "91", "event": "UPGRADE"},
        "display_phone_number event current_limit max_daily_conversations_per_business",
        "old_limit",
    ),
    (
        "phone_number_name_update",
        {"display_phone_number": "91", "decision": "APPROVED"},
        "display_phone_number decision",
        "rejection_reason",
    ),
    (
        "business_username_update",
        {"display_phone_number": "91", "status": "approved", "username": "a"},
        "display_phone_number status username",
        "detail",
    ),
    (
        "account_alerts",
        {"entity_id": "1", "alert_info": {"alert_type": "T", "alert_status": "ACTIVE"}},
        "entity_id",
        "entity_type",
    ),
    (
        "account_alerts",
        {"entity_id": "1", "alert_type": "T", "alert_status": "ACTIVE"},
        "entity_id alert_type alert_status",
        "alert_description",
    ),
    ("account_update", {"event": "DISABLED_UPDATE"}, "event ban_info", ""),
    ("business_capability_update", {"max_phone_numbers_per_waba": 5}, "max_phone_numbers_per_waba", ""),
    (
        "security",
        {"display_phone_number": "91", "event": "PIN_CHANGED"},
        "display_phone_number event",
        "requester",
    ),
]
"""For each kind: a value with one item, members of the item (or of the value) that distinguish two events, and members
that do not.
"""


@pytest.mark.parametrize(("field", "value", "distinct", "same"), IDENTITIES)
def test_what_repeats_is_one_event_and_what_differs_is_another(
    field: str, value: dict[str, Any], distinct: str, same: str
) -> None:
    def key(**changed: object) -> str:
        copy = json.loads(json.dumps(value))
        held = copy.get("standby", copy)
        items = next((each for each in held.values() if isinstance(each, list)), [held])
        items[0] |= changed
        return drafts_of(notification(field, {**ENVELOPE, **copy}, time=7))[-1].dedupe_key

    keys = [key(), *(key(**{name: f"{name} 5"}) for name in distinct.split())]
    assert len(set(keys)) == len(keys), keys
    assert {key(**{name: f"{name} 5"}) for name in same.split()} <= {keys[0]}


@pytest.mark.parametrize(
    ("field", "value", "wa_id", "user_id"),
    [
        ("messages", {"messages": [{"from": "91", "from_user_id": "IN.1"}]}, "91", "IN.1"),
        ("messages", {"statuses": [{"recipient_id": "91", "recipient_user_id": "IN.1"}]}, "91", "IN.1"),
        ("messages", {"statuses": [{**GROUP, "recipient_participant_id": "91"}]}, "91", None),
        ("messages", {"statuses": [{**GROUP, "participant_recipient_id": "91"}]}, "91", None),
        ("messages", {"statuses": [{**GROUP, "recipient_participant_user_id": "IN.1"}]}, None, "IN.1"),
        ("messages", {"user_actions": [{"wa_id": "91", "user_id": "IN.1"}]}, "91", "IN.1"),
        (
            "message_echoes",
            {"message_echoes": [{"from": "9", "to": "91", "to_user_id": "IN.1"}]},
            "91",
            "IN.1",
        ),
        ("history", {"messages": [{"from": "91", "from_user_id": "IN.1"}]}, "91", "IN.1"),
        ("history", {"message_echoes": [{"from": "9", "to": "91", "to_user_id": "IN.1"}]}, "91", "IN.1"),
        ("history", {"history": [{"threads": [{"id": "91", "messages": [{}]}]}]}, "91", None),
        (
            "history",
            {"history": [{"threads": [{"context": {"wa_id": "91", "user_id": "IN.1"}, "messages": [{}]}]}]},
            "91",
            "IN.1",
        ),
        ("smb_app_state_sync", {"state_sync": [{"contact": {"phone_number": "91"}}]}, "91", None),
        ("smb_app_state_sync", {"state_sync": [{"contact": {"user_id": "IN.1"}}]}, None, "IN.1"),
        ("user_preferences", {"user_preferences": [{"wa_id": "91", "user_id": "IN.1"}]}, "91", "IN.1"),
        (
            "user_id_update",
            {"user_id_update": [{"wa_id": "91", "user_id": {"current": "IN.1"}}]},
            "91",
            "IN.1",
        ),
        ("user_id_update", {"user_id_update": [{"wa_id": "91", "user_id": "IN.1"}]}, "91", "IN.1"),
        ("calls", {"calls": [{"from": "91", "from_user_id": "IN.1", "to": "9"}]}, "91", "IN.1"),
        (
            "calls",
            {"calls": [{"direction": "BUSINESS_INITIATED", "from": "9", "to": "91", "to_user_id": "IN.1"}]},
            "91",
            "IN.1",
        ),
        ("calls", {"statuses": [{"recipient_id": "91", "recipient_user_id": "IN.1"}]}, "91", "IN.1"),
        ("group_lifecycle_update", {"groups": [{"wa_id": "91", "user_id": "IN.1"}]}, "91", "IN.1"),
        ("standby", {"standby": {"messages": [{"from": "91", "from_user_id": "IN.1"}]}}, "91", "IN.1"),
        ("standby", {"standby": {"message_echoes": [{"from": "9", "to": "91"}]}}, "91", None),
        (
            "standby",
            {"standby": {"message_echoes": [{"message": {"to": "91", "recipient": "IN.1"}}]}},
            "91",
            "IN.1",
        ),
        ("standby", {"standby": {"message_echoes": [{"message": {"to_user_id": "IN.1"}}]}}, None, "IN.1"),
        ("standby", {"standby": {"statuses": [{"recipient_id": "91"}]}}, "91", None),
        ("messaging_handovers", {"sender": {"phone_number": "91", "user_id": "IN.1"}}, "91", "IN.1"),
        ("messaging_handovers", {"sender": {"wa_id": "91"}}, "91", None),
    ],
)
def test_each_kind_of_item_names_its_customer(
    field: str, value: dict[str, Any], wa_id: str | None, user_id: str | None
) -> None:
    draft = drafts_of(notification(field, {**ENVELOPE, **value}))[-1]
    assert (draft.wa_id, draft.user_id) == (wa_id, user_id)


@pytest.mark.parametrize(
    ("written", "response"),
    [
        ('{"a":1}', {"a": 1}),
        (json.dumps({"a": "[" * 199}), {"a": "[" * 199}),
        (json.dumps({"a": "[" * 200}), None),
        *((each, None) for each in ("[]", "{", "", 5, None)),
    ],
)
def test_the_response_of_a_flow_is_shown_as_an_object(written: object, response: object) -> None:
    def shown(**reply: object) -> Any:
        flow = message(type="interactive", interactive={"type": "nfm_reply", "nfm_reply": reply})
        data = json.loads(one_draft(notification("messages", {**ENVELOPE, "messages": [flow]})).data)
        return data["message"]["interactive"]["nfm_reply"]

    added = {} if response is None else {"response": response}
    assert shown(response_json=written, name="flow") == {"response_json": written, "name": "flow", **added}
    own = {"response_json": written, "response": "Meta's own"}
    assert shown(**own) == own


def test_a_quality_score_that_comes_as_a_template_status_is_a_quality_event() -> None:
    value = {"message_template_id": 1, "new_quality_score": "GREEN"}
    body = notification("message_template_status_update", value)
    assert (one_draft(body).type, changes_of(body)[0].field) == (
        "template.quality",
        "message_template_quality_update",
    )


# Facts of messages


def status_facts(**members: object) -> MessageFacts:
    body = notification(
        "messages", {**ENVELOPE, "statuses": [{"id": "wamid.1", "status": "sent", **members}]}
    )
    return facts_of(body)


def facts_of(body: bytes) -> MessageFacts:
    facts = one_draft(body).message
    assert facts is not None
    return facts


def test_no_fact_is_longer_than_its_column() -> None:
    """A longer text would make the database reject the whole notification."""
    long = "w" * 600
    referral = dict.fromkeys(("source_type", "source_id", "ctwa_clid"), long)
    template = {"name": long, "language": {"code": long}}
    item = message(type=long, referral=referral, template=template)
    sent = facts_of(notification("messages", {**ENVELOPE, "messages": [item]}))
    assert [
        len(text or "")
        for text in (
            sent.type,
            sent.template,
            sent.template_language,
            sent.referral_source_type,
            sent.referral_source_id,
            sent.referral_ctwa_clid,
        )
    ] == [40, 512, 20, 20, 255, 512]
    status = status_facts(status=long, pricing={"category": long, "type": long})
    assert (status.status, len(status.word or "")) == (None, 20)
    assert (len(status.pricing_category or ""), len(status.pricing_type or "")) == (40, 40)


@pytest.mark.parametrize(
    ("timestamp", "at_ms"),
    [
        ("1793500000", 1_793_500_000_000),
        (1793500000, 1_793_500_000_000),
        ("1", 1000),
        ("253402300799", 253_402_300_799_000),
        *((each, None) for each in ("0", "-1", "253402300800", "9" * 13, "1.5", "٣", "", None, 1.5)),
    ],
)
def test_a_time_that_is_none_is_left_to_the_event(timestamp: object, at_ms: int | None) -> None:
    assert status_facts(timestamp=timestamp).at_ms == at_ms


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({"errors": [{"code": 131047}, {"code": 1}]}, 131047),
        ({"errors": [{"code": 0}]}, 0),
        ({"errors": [{"code": 2**31 - 1}]}, 2**31 - 1),
        ({"error": {"code": 7}}, 7),
        ({"errors": [], "error": {"code": 7}}, 7),
        ({"errors": [{"code": 5}], "error": {"code": 7}}, 5),
        *(({"errors": [{"code": each}]}, None) for each in (-1, 2**31, "131047", 1.0, True, None)),
        *(({"errors": each}, None) for each in ({"code": 5}, [5], "x")),
    ],
)
def test_the_code_of_a_status_is_its_first_errors(errors: dict[str, object], code: int | None) -> None:
    assert status_facts(**errors).error_code == code


@pytest.mark.parametrize(
    ("said", "billable"), [(True, True), (False, False), ("true", None), (1, None), (None, None)]
)
def test_a_message_is_billable_only_where_meta_says_so(said: object, billable: bool | None) -> None:
    assert status_facts(pricing={"billable": said}).billable is billable


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("SENT", "sent"),
        ("DELIVERED", "delivered"),
        ("READ", "read"),
        ("PLAYED", "read"),
        ("PENDING", "accepted"),
        ("ERROR", "failed"),
        ("failed", "failed"),
        ("NOVEL", "sent"),
        (None, "sent"),
    ],
)
@pytest.mark.parametrize(
    ("from_me", "sender", "is_own"),
    [
        (True, "919812345678", True),
        (False, "919800000001", False),
        (None, "919800000001", True),
        (None, "919812345678", False),
    ],
)
def test_an_old_message_has_its_direction_and_its_status_of_then(
    from_me: bool | None, sender: str, is_own: bool, word: str | None, status: str
) -> None:
    item = message(**{"from": sender}, history_context={"status": word, "from_me": from_me})
    metadata = {"phone_number_id": "2", "display_phone_number": "+91 98000 00001"}
    threads = [{"id": "919812345678", "messages": [item]}]
    body = notification("history", {"metadata": metadata, "history": [{"threads": threads}]})
    facts = drafts_of(body)[1].message
    assert facts is not None
    assert (facts.direction, facts.status) == (("outbound", status) if is_own else ("inbound", "received"))
    assert facts.is_history is True


@pytest.mark.parametrize(
    ("sender", "is_own"), [("919800000001", True), ("919812345678", False), (None, False)]
)
def test_an_old_file_that_the_business_sent_is_its_own(sender: str | None, is_own: bool) -> None:
    item: dict[str, Any] = {**message(), "from": sender, "to": "919812345678" if is_own else "919800000001"}
    metadata = {"phone_number_id": "2", "display_phone_number": "+91 98000 00001"}
    draft = drafts_of(notification("history", {"metadata": metadata, "messages": [item]}))[1]
    assert draft.message is not None
    assert draft.message.direction == ("outbound" if is_own else "inbound")
    assert draft.wa_id == (sender and "919812345678")


# Customers


def test_a_status_does_not_get_the_contact_of_another_status() -> None:
    delivered, failed = drafts_of(BODIES["messages__example_b"])
    assert json.loads(delivered.data)["contacts"][0]["wa_id"] == delivered.wa_id
    assert "contacts" not in json.loads(failed.data)
    assert failed.user_id is None


def test_a_single_contact_belongs_to_a_single_message_though_the_number_is_written_otherwise() -> None:
    contact = {"wa_id": "5511999999999", "user_id": "BR.1"}
    value = {**ENVELOPE, "contacts": [contact], "messages": [message(**{"from": "551199999999"})]}
    draft = one_draft(notification("messages", value))
    assert json.loads(draft.data)["contacts"] == [contact]
    assert (draft.wa_id, draft.user_id) == ("551199999999", "BR.1")


def test_contacts_that_are_no_list_or_hold_no_objects_pass_through() -> None:
    value = {**ENVELOPE, "contacts": {"a": 1}, "messages": [message()]}
    assert json.loads(one_draft(notification("messages", value)).data)["contacts"] == {"a": 1}
    value = {**ENVELOPE, "contacts": [None, "x"], "messages": [message()]}
    assert json.loads(one_draft(notification("messages", value)).data)["contacts"] == [None, "x"]


# Nothing is dropped


def test_unknown_members_of_a_value_go_with_each_of_its_items() -> None:
    value = {**ENVELOPE, "novelty": 7, "messages": [message(id="wamid.1"), message(id="wamid.2")]}
    members = [list(json.loads(draft.data)) for draft in drafts_of(notification("messages", value))]
    assert members == [["messaging_product", "metadata", "message", "novelty"]] * 2


def test_unknown_members_beside_and_inside_standby_go_with_each_of_its_items() -> None:
    held = {"contacts": [], "messages": [message()], "novelty": 7}
    draft = one_draft(notification("standby", {**ENVELOPE, "standby": held, "more": 8}))
    data = json.loads(draft.data)
    assert data["standby"] == {"messages": [message()], "novelty": 7}
    assert data["more"] == 8


def test_several_kinds_of_items_in_one_value_all_come_out() -> None:
    value = {
        **ENVELOPE,
        "errors": [{"code": 1}],
        "statuses": [{"id": "wamid.2", "status": "sent"}],
        "user_actions": [{"x": 1}],
        "messages": [message()],
    }
    types = [draft.type for draft in drafts_of(notification("messages", value))]
    assert types == ["message.inbound", "message.status", "message.error", "meta.other"]


@pytest.mark.parametrize("value", [None, 1, "x", True, 1.5, [], [{"messages": []}], {}])
@pytest.mark.parametrize("field", ["messages", "standby", "account_update", "history", "novel"])
def test_a_value_of_any_kind_comes_out_once(field: str, value: object) -> None:
    draft = one_draft(notification(field, value))
    data = json.loads(draft.data)
    assert data.pop("field") == field
    assert data == (value if isinstance(value, dict) else {"value": value})
    assert draft.raw_path == "entry[0].changes[0].value"


@pytest.mark.parametrize("change", [None, 1, "x", [], {}, {"field": 7}, {"value": None}])
def test_a_change_of_any_kind_comes_out_once(change: object) -> None:
    body = wire({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]})
    assert one_draft(body).type == "meta.other"


@pytest.mark.parametrize("member", ["messages", "statuses", "calls", "message_echoes", "standby", "history"])
def test_a_change_that_names_no_field_is_known_by_what_it_holds(member: str) -> None:
    value = {member: {"messages": [message()]} if member == "standby" else [message()]}
    change = {"value": {**ENVELOPE, **value}}
    body = wire({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]})
    named = {"statuses": "messages", "message_echoes": "smb_message_echoes"}.get(member, member)
    assert changes_of(body)[0].field == named


@pytest.mark.parametrize(
    "entry",
    [
        {"changes": [{"value": {"decision": "APPROVED", "field": "account_review_update"}}]},
        {"changes": [{"value": {"decision": "APPROVED"}}], "field": "account_review_update"},
        {"changes": [{"decision": "APPROVED", "field": "account_review_update"}]},
    ],
)
def test_a_field_in_the_wrong_place_is_found(entry: dict[str, object]) -> None:
    body = wire({"object": "whatsapp_business_account", "entry": [{"id": "1", **entry}]})
    draft = one_draft(body)
    assert draft.type == "account.update"
    assert json.loads(draft.data) == {"decision": "APPROVED", "field": "account_review_update"}


# Malformed bodies


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b'{"object":NaN}', "the body is not JSON"),
        (b"\xef\xbb\xbf{}", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[" * 50_000 + b"1234567890123456789" + b"]" * 50_000, "the body is not JSON"),
        (b"[]", "the body is not an object"),
        (b"9" * 5_000, "the body is not an object"),
        (b"{}", "object is not whatsapp_business_account"),
        (b'{"object":"page","entry":[]}', "object is not whatsapp_business_account"),
        (b'{"object":"whatsapp_business_account"}', "entry is not a list"),
        (b'{"object":"whatsapp_business_account","entry":{}}', "entry is not a list"),
    ],
)
def test_a_malformed_body_is_named(body: bytes, error: str) -> None:
    normalised = normalise(body)
    assert (normalised.changes, normalised.error) == ((), error)


def test_a_notification_without_entries_is_no_error() -> None:
    assert changes_of(b'{"object":"whatsapp_business_account","entry":[]}') == ()


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("x", "entry[1] is not an object"),
        ({"id": "1"}, "entry[1].changes is not a list"),
        ({"id": "1", "changes": {}}, "entry[1].changes is not a list"),
    ],
)
def test_a_malformed_entry_is_named_and_its_neighbours_are_read(entry: object, error: str) -> None:
    whole = json.loads(BODIES["messages__text"])
    whole["entry"] = [whole["entry"][0], entry, whole["entry"][0], None]
    normalised = normalise(wire(whole))
    assert normalised.error == error
    assert [change.drafts[0].raw_path[:8] for change in normalised.changes] == ["entry[0]", "entry[2]"]


# JSON that other parsers corrupt or reject


def data_with(literal: bytes) -> bytes:
    """The `data` of a message that has the JSON text `literal` as its member `x`."""
    value = {**ENVELOPE, "messages": [message(x="@@")]}
    return one_draft(notification("messages", value).replace(b'"@@"', literal)).data


@pytest.mark.parametrize(
    ("literal", "written"),
    [
        (b"9007199254740991", b"9007199254740991"),
        (b"-9007199254740991", b"-9007199254740991"),
        (b"9007199254740992", b'"9007199254740992"'),
        (b"-9007199254740992", b'"-9007199254740992"'),
        (b"18446744073709551617", b'"18446744073709551617"'),
        (b"7" * 5_000, b'"' + b"7" * 5_000 + b'"'),
        (b"[1,\n 9007199254740993]", b'[1,"9007199254740993"]'),
        (b'{"y" : -9007199254740993}', b'{"y":"-9007199254740993"}'),
        (b'", 9007199254740993"', b'", 9007199254740993"'),
        (b"0.1234567890123456", b"0.1234567890123456"),
        (b"1e400", b'"1e400"'),
        (b"12.50", b"12.5"),
    ],
)
def test_no_digit_is_lost(literal: bytes, written: bytes) -> None:
    assert data_with(literal).endswith(b'"x":' + written + b"}}")


@pytest.mark.parametrize(
    ("literal", "written"),
    [
        (rb'"\ud83d\udc4b"', "👋"),
        (rb'"a\ud83d"', "a\ufffd"),
        (rb'"\udc4bz"', "\ufffdz"),
        (rb'"\uD83D\uD83D\uDC4B"', "\ufffd👋"),
        (rb'"\\ud83d"', "\\ud83d"),
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'"\ud83d\\udc4b"', "\ufffd\\udc4b"),
        (rb'"\ud83d\n"', "\ufffd\n"),
    ],
)
def test_half_a_surrogate_pair_does_not_spoil_the_message(literal: bytes, written: str) -> None:
    assert orjson.loads(data_with(literal))["message"]["x"] == written


def test_a_null_character_stays_in_data_and_never_reaches_a_column() -> None:
    value = {**ENVELOPE, "messages": [message("a\0b", id="wamid.\0", **{"from": "91\0"})]}
    draft = one_draft(notification("messages", value, id="1\0"))
    assert (draft.wamid, draft.wa_id) == ("wamid.\ufffd", "91\ufffd")
    assert draft.dedupe_key == "msg:wamid.\ufffd"
    assert json.loads(draft.data)["message"]["text"]["body"] == "a\0b"
    assert changes_of(notification("no\0vel", {"event": "\0"}))[0].field == "no\ufffdvel"


def test_the_last_of_duplicate_keys_counts() -> None:
    body = notification("messages", {**ENVELOPE, "messages": [message()]})
    twice = body.replace(b'"id":"wamid.1"', b'"id":"wamid.0","id":"wamid.1"')
    assert one_draft(twice) == one_draft(body)


def test_a_value_too_deep_to_write_again_still_makes_an_event() -> None:
    deep = notification("novel", "@@", time=1).replace(b'"@@"', b"[" * 500 + b"]" * 500)
    draft = one_draft(deep)
    assert (draft.type, draft.raw_path) == ("meta.other", "entry[0].changes[0].value")
    assert json.loads(draft.data) == {"field": "novel"}
    assert draft.dedupe_key == f"meta:novel:{hashlib.sha256(deep).hexdigest()}:0.0"


@pytest.mark.parametrize("item", ["@@", {"id": "wamid.2", "text": "@@"}, {"text": "@@"}])
def test_an_item_too_deep_to_write_again_costs_only_itself(item: Any) -> None:
    messages = [message(id="wamid.1"), item, message(id="wamid.3")]
    deep = notification("messages", {**ENVELOPE, "messages": messages}).replace(
        b'"@@"', b"[" * 500 + b"]" * 500
    )
    (change,) = normalise(deep).changes
    assert [draft.type for draft in change.drafts] == ["message.inbound", "meta.other", "message.inbound"]
    assert [draft.wamid for draft in change.drafts] == ["wamid.1", None, "wamid.3"]
    assert change.drafts[1].raw_path == "entry[0].changes[0].value.messages[1]"
    assert len({draft.dedupe_key for draft in change.drafts}) == 3


# Large notifications


def chunk(*texts: str) -> bytes:
    """A piece of the old chats with one message for each text, shorter than those of Meta."""
    old = [
        {
            "from": "919812345678",
            "id": f"wamid.{n}",
            "timestamp": "1793500000",
            "type": "text",
            "text": {"body": body},
            "history_context": {"status": "READ"},
        }
        for n, body in enumerate(texts)
    ]
    threads = [{"id": "919812345678", "messages": old}]
    return notification("history", {**ENVELOPE, "history": [{"metadata": {"phase": 0}, "threads": threads}]})


def test_a_chunk_of_the_largest_size_makes_an_event_of_each_message() -> None:
    body = chunk(*["k"] * 22_500)
    assert LARGEST_BODY * 0.95 < len(body) < LARGEST_BODY
    assert len(drafts_of(body)) == 22_501


@pytest.mark.parametrize("text", ["UTR 1234567890123456", "\ud83d", 9007199254740993])
def test_one_odd_text_among_many_escapes_costs_nothing(text: Any) -> None:
    """In India's languages each letter is an escape."""
    drafts = drafts_of(chunk(*["नमस्ते जी" * 5] * 3_000, text))
    assert len(drafts) == 3_002
    shown = {"\ud83d": "\ufffd", 9007199254740993: "9007199254740993"}.get(text, text)
    assert orjson.loads(drafts[-1].data)["message"]["text"]["body"] == shown


@pytest.mark.parametrize(
    "members",
    [
        *(
            pytest.param(f'"messages":[{",".join([item] * (MOST_EVENTS + 1))}]', id=item)
            for item in ("{}", "1", "[]")
        ),
        pytest.param(
            f'"messages":[{",".join(["{}"] * 1_000)}],"beside":"{"x" * (MOST_BYTES // 1_000)}"', id="beside"
        ),
        pytest.param(f'"x":[{",".join(["{}"] * MOST_OBJECTS)}{" " * LARGEST_BODY}]', id="objects"),
        pytest.param(f'"x":[{",".join(["1"] * MOST_MEMBERS)},1{" " * LARGEST_BODY}]', id="members"),
        pytest.param(
            rf'"x":"{chr(92)}ud800{rf"{chr(92)}n" * MOST_ESCAPES}{" " * LARGEST_BODY}"', id="escapes"
        ),
    ],
)
def test_a_change_beyond_the_limits_is_one_event_that_refers_to_raw(members: str) -> None:
    body = notification("messages", {**ENVELOPE, "@@": 1}).replace(b'"@@":1', members.encode())
    (change,) = changes_of(body)
    assert (change.route.entry_id, change.route.phone_number_id) == ("100200300400500", "200300400500600")
    (draft,) = change.drafts
    assert (draft.type, json.loads(draft.data)) == ("meta.other", {"field": "messages"})
    assert draft.raw_path == "entry[0].changes[0].value"
    assert draft.dedupe_key == f"meta:messages:{hashlib.sha256(body).hexdigest()}:0.0"


def test_changes_after_the_limit_are_one_event_each() -> None:
    many = {"field": "messages", "value": {**ENVELOPE, "messages": [{}] * (MOST_EVENTS - 1)}}
    one = {"field": "messages", "value": {**ENVELOPE, "messages": [message(), message()]}}
    body = wire({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [many, one, one]}]})
    assert [len(change.drafts) for change in changes_of(body)] == [MOST_EVENTS - 1, 1, 1]


def test_more_changes_than_the_upstream_ever_sends_make_no_events() -> None:
    entry = {"id": "1", "changes": [1] * (MOST_CHANGES + 1)}
    refused = normalise(wire({"object": "whatsapp_business_account", "entry": [entry]}))
    assert (refused.changes, refused.error) == ((), f"more than {MOST_CHANGES} changes")


def test_a_large_body_whose_owner_cannot_be_read_is_named() -> None:
    for body in (b"{" * LARGEST_BODY * 2, b"[1" + b",1" * LARGEST_BODY + b"]"):
        refused = normalise(body)
        assert refused.changes == ()
        assert (refused.error or "").startswith(f"more than {MOST_OBJECTS} objects")
