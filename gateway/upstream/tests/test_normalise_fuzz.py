"""Fuzzing of the normaliser: it never raises, loses no change, and its paths are correct."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.notifications.lossless_json import loads
from gateway.upstream.notifications.normalise import Change, normalise
from gateway.upstream.tests.notifications import BODIES, NAMES, at_path

LONGEST = 255

json_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None, exclude_categories=[]), max_size=8)
    | st.sampled_from(["", "\0", "\ud83d", "payment", "group", "w" * 300])
)
member_names = st.text(max_size=5) | st.sampled_from(
    [
        "messages",
        "statuses",
        "errors",
        "contacts",
        "metadata",
        "value",
        "field",
        "standby",
        "event",
        "id",
        "wa_id",
    ]
)
json_values = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(member_names, inner, max_size=4),
    max_leaves=12,
)


def nodes(value: Any, holder: Any = None, key: Any = None) -> list[tuple[Any, Any]]:
    """Every node below `value`, as a pair: the list or object that contains it, and its index or name there."""
    found = [] if holder is None else [(holder, key)]
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, member in members:
        found += nodes(member, value, name)
    return found


@st.composite
def mutated_notifications(draw: st.DrawFn) -> bytes:
    """One golden notification or two joined ones, with up to four nodes deleted, repeated, moved or replaced."""
    whole = json.loads(BODIES[draw(st.sampled_from(NAMES))])
    whole["entry"] += json.loads(BODIES[draw(st.sampled_from(NAMES))])["entry"]
    for _ in range(draw(st.integers(0, 4))):
        places = nodes(whole)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["delete", "replace", "wrap", "unwrap", "repeat"]))
        if action == "delete":
            del holder[key]
        elif action == "replace":
            holder[key] = draw(json_values)
        elif action == "wrap":
            holder[key] = [holder[key]]
        elif action == "unwrap" and isinstance(holder[key], list) and holder[key]:
            holder[key] = holder[key][0]
        elif action == "repeat" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
    return json.dumps(whole).encode()


def assert_sound(body: bytes) -> None:
    """Check the properties of any body, and of each change in a readable body."""
    normalised = normalise(body)
    try:
        parsed = loads(body)
    except ValueError:
        assert normalised.error is not None
        assert normalised.changes == ()
        return
    entries = parsed.get("entry") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or parsed.get("object") != "whatsapp_business_account":
        assert normalised.error is not None
        assert normalised.changes == ()
        return
    listed = [entry.get("changes") if isinstance(entry, dict) else None for entry in entries]
    places = [
        (i, j) for i, changes in enumerate(listed) if isinstance(changes, list) for j in range(len(changes))
    ]
    assert (normalised.error is None) == all(isinstance(changes, list) for changes in listed)
    assert [(change.entry, change.change) for change in normalised.changes] == places
    for change in normalised.changes:
        assert_change_is_sound(change, parsed)


def assert_change_is_sound(change: Change, parsed: Any) -> None:
    assert change.drafts
    paths = [draft.raw_path for draft in change.drafts]
    assert len(set(paths)) == len(paths)
    for draft in change.drafts:
        columns = [draft.phone_number_id, draft.display_phone_number]
        columns += [draft.dedupe_key, draft.wamid, draft.wa_id, draft.user_id]
        for column in columns:
            if column is not None:
                assert len(column) <= LONGEST
                assert b"\0" not in column.encode()
        assert_nothing_dropped(draft.raw_path, json.loads(draft.data), at_path(parsed, draft.raw_path))


def without_response(value: Any) -> Any:
    """A value without the member `response` that the service adds to a finished Flow, beside its source text."""
    if isinstance(value, list):
        return [without_response(each) for each in value]
    if not isinstance(value, dict):
        return value
    added = {"response"} if "response_json" in value else set()
    return {name: without_response(member) for name, member in value.items() if name not in added}


def assert_nothing_dropped(raw_path: str, data: dict[str, Any], item: Any) -> None:
    """Check that `data` has the whole item at `raw_path`."""
    data, item = without_response(data), without_response(item)
    if isinstance(item, dict) and all(
        data.get(name) == member for name, member in item.items() if name != "field"
    ):
        return
    inside = data.get("standby") if ".standby." in raw_path else data
    assert isinstance(inside, dict)
    assert item in inside.values() or [item] in inside.values()


@settings(max_examples=400)
@given(mutated_notifications())
def test_mutated_notifications(body: bytes) -> None:
    assert_sound(body)


@settings(max_examples=200)
@given(json_values)
def test_any_json(value: Any) -> None:
    assert_sound(json.dumps(value).encode())


@settings(max_examples=200)
@given(
    st.lists(json_values | st.fixed_dictionaries({"changes": st.lists(json_values, max_size=3)}), max_size=3)
)
def test_any_json_in_the_envelope(entries: list[Any]) -> None:
    assert_sound(json.dumps({"object": "whatsapp_business_account", "entry": entries}).encode())


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    assert_sound(body)


@settings(max_examples=200)
@given(st.sampled_from(NAMES), st.integers(0, 5_000), st.binary(max_size=3))
def test_a_damaged_byte(name: str, position: int, instead: bytes) -> None:
    body = BODIES[name]
    position %= len(body)
    assert_sound(body[:position] + instead + body[position + 1 :])
