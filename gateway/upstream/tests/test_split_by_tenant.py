"""A notification reduced to one tenant's changes, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.notifications.normalise import normalise
from gateway.upstream.notifications.split_by_tenant import Place, Splitter, rebase
from gateway.upstream.tests.notifications import BODIES, NAMES, at_path

TWO_TENANTS = (
    b'{ "object" : "whatsapp_business_account",\n "entry":[ {"id":"1","changes":[ {"field":"messages","value":{'
    rb'"note":"caf\u00e9 \/ \"]}{[\\" } } , {"field": "b","value":2e0}],"time": 17 } ,'
    b'\n{"id":"2", "changes":[{"field":"c","value":[1,[2],{"x":"}"}]}]} ] }'
)


def test_what_stays_is_copied_and_the_rest_is_gone() -> None:
    assert Splitter(TWO_TENANTS).split({(0, 0)}) == (
        b'{"object" : "whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{'
        rb'"note":"caf\u00e9 \/ \"]}{[\\" } }],"time": 17}]}',
        {(0, 0): (0, 0)},
    )


def test_places_move_up() -> None:
    splitter = Splitter(TWO_TENANTS)
    body, moved = splitter.split([(1, 0), (0, 1)])
    assert moved == {(0, 1): (0, 0), (1, 0): (1, 0)}
    assert splitter.split({(1, 0)})[1] == {(1, 0): (0, 0)}
    assert b'{"field": "b","value":2e0}' in body


def test_a_notification_of_one_tenant_stays_as_it_is() -> None:
    everything = [(0, 0), (0, 1), (1, 0)]
    assert Splitter(TWO_TENANTS).split(everything) == (TWO_TENANTS, {place: place for place in everything})


def test_nothing_kept_leaves_no_entries() -> None:
    assert Splitter(TWO_TENANTS).split(set()) == (b'{"object" : "whatsapp_business_account","entry":[]}', {})


@pytest.mark.parametrize("place", [(0, 2), (2, 0), (-1, 0)])
def test_a_place_that_does_not_exist_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="no change at one of the places"):
        Splitter(TWO_TENANTS).split({(0, 0), place})


def test_of_duplicate_keys_only_the_last_survives() -> None:
    body = (
        b'{"entry":[{"changes":["secret of another"]}],"object":"o",'
        rb'"\u0065ntry":[{"changes":["old"],"id":"1","changes":["a","b"]},{"changes":["c"]}]}'
    )
    kept, _ = Splitter(body).split({(0, 1)})
    assert json.loads(kept) == {"object": "o", "entry": [{"id": "1", "changes": ["b"]}]}
    assert b"secret" not in kept
    assert b"old" not in kept


@pytest.mark.parametrize("entry", [b'{"changes":{"a":[1]}}', b'{"changes":"[]"}', b"{}", b"[7]", b'"x"'])
def test_an_entry_without_a_list_of_changes_goes(entry: bytes) -> None:
    body = b'{"entry":[%s,{"changes":[1,2]}]}' % entry
    assert Splitter(body).split({(1, 1)}) == (b'{"entry":[{"changes":[2]}]}', {(1, 1): (0, 0)})
    assert Splitter(body).split({(1, 0), (1, 1)})[0] == body


def test_depth_and_length_do_not_matter() -> None:
    deep = b"[" * 1_000 + b"]" * 1_000
    long = b'"' + rb"\\\"" * 100_000 + b'"'
    body = b'{"entry":[{"changes":[%s,%s,1]}],"object":"o"}' % (deep, long)
    assert Splitter(body).split({(0, 1)})[0] == b'{"entry":[{"changes":[%s]}],"object":"o"}' % long


def test_rebase_changes_the_place_alone() -> None:
    path = "entry[12].changes[3].value.messages[7]"
    assert rebase(path, (0, 1)) == "entry[0].changes[1].value.messages[7]"
    assert rebase("entry[1].changes[0]", (0, 0)) == "entry[0].changes[0]"


def test_raw_paths_lead_to_the_same_items_after_the_split() -> None:
    body = BODIES["messages__several_tenants"]
    changes = normalise(body).changes
    assert len([change for change in changes if change.drafts]) > 1
    for change in changes:
        kept, moved = Splitter(body).split({(change.entry, change.change)})
        for draft in change.drafts:
            path = rebase(draft.raw_path, moved[draft.entry, draft.change])
            assert at_path(json.loads(kept), path) == at_path(json.loads(body), draft.raw_path)


# Bodies with unusual spacing, escaped names and repeated members, and the bytes of each of their changes.

spaces = st.sampled_from([b"", b"", b" ", b"\n\t", b"\r\n  "])
texts = st.text(st.sampled_from('ab"\\/{}[]:,é\0👋') | st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> bytes:
    if isinstance(value, dict):
        members = [draw(member(name, draw(written(each)))) for name, each in value.items()]
        return draw(bracketed(b"{", members, b"}"))
    if isinstance(value, list):
        return draw(bracketed(b"[", [draw(written(each)) for each in value], b"]"))
    return json.dumps(value, ensure_ascii=draw(st.booleans())).encode()


@st.composite
def member(draw: st.DrawFn, name: str, value: bytes) -> bytes:
    escaped = "".join(f"\\u{ord(c):04x}" for c in name) if name.isascii() and draw(st.booleans()) else None
    quoted = json.dumps(name) if escaped is None else f'"{escaped}"'
    return quoted.encode() + draw(spaces) + b":" + draw(spaces) + value


@st.composite
def bracketed(draw: st.DrawFn, opening: bytes, items: list[bytes], closing: bytes) -> bytes:
    inner = b",".join(draw(spaces) + item + draw(spaces) for item in items)
    return opening + draw(spaces) + inner + closing


@st.composite
def object_with(draw: st.DrawFn, name: str, items: bytes) -> bytes:
    """An object whose member `name` is the list `items`. It also has other members, and earlier ones with this name."""
    others = draw(st.dictionaries(texts.filter(lambda other: other != name), values, max_size=2))
    before = [draw(member(other, draw(written(value)))) for other, value in others.items()]
    before += [draw(member(name, draw(written(value)))) for value in draw(st.lists(values, max_size=1))]
    after = [draw(member("id", draw(written(draw(texts)))))] if draw(st.booleans()) else []
    return draw(bracketed(b"{", [*before, draw(member(name, items)), *after], b"}"))


@st.composite
def notifications(draw: st.DrawFn) -> tuple[bytes, dict[Place, bytes]]:
    changes: dict[Place, bytes] = {}
    entries: list[bytes] = []
    for i in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 4)) == 0:
            entries.append(draw(written(draw(values.filter(lambda value: not isinstance(value, dict))))))
            continue
        listed = [draw(written(value)) for value in draw(st.lists(values, max_size=3))]
        changes |= {(i, j): change for j, change in enumerate(listed)}
        entries.append(draw(object_with("changes", draw(bracketed(b"[", listed, b"]")))))
    body = draw(object_with("entry", draw(bracketed(b"[", entries, b"]"))))
    return draw(spaces) + body + draw(spaces), changes


def filtered(notification: Any, keep: set[Place]) -> Any:
    entries = []
    for i, entry in enumerate(notification["entry"]):
        listed = entry.get("changes") if isinstance(entry, dict) else None
        kept = [change for j, change in enumerate(listed or []) if (i, j) in keep]
        if kept:
            entries.append({**entry, "changes": kept})
    return {**notification, "entry": entries}


@settings(max_examples=100)
@given(notifications(), st.data())
def test_any_notification(notification: tuple[bytes, dict[Place, bytes]], data: st.DataObject) -> None:
    body, changes = notification
    keep = data.draw(st.sets(st.sampled_from(sorted(changes)))) if changes else set()
    kept, moved = Splitter(body).split(keep)
    if keep == set(changes):
        assert kept == body
        assert moved == {place: place for place in keep}
        return
    assert json.loads(kept) == filtered(json.loads(body), keep)
    assert set(moved) == keep
    for old, new in moved.items():
        alone, _ = Splitter(kept).split({new})
        # After a split to one change, the rest of the body is that change, byte for byte.
        assert changes[old] in alone
        assert json.loads(kept)["entry"][new[0]]["changes"][new[1]] == json.loads(changes[old])


@settings(max_examples=30)
@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=4), st.data())
def test_golden_notifications_of_several_tenants(names: list[str], data: st.DataObject) -> None:
    whole = {"object": "o", "entry": [entry for name in names for entry in json.loads(BODIES[name])["entry"]]}
    body = json.dumps(whole).replace("/", "\\/").encode()
    places = [(i, j) for i, entry in enumerate(whole["entry"]) for j in range(len(entry["changes"]))]
    keep = data.draw(st.sets(st.sampled_from(places), max_size=len(places) - 1))
    assert json.loads(Splitter(body).split(keep)[0]) == filtered(whole, keep)
