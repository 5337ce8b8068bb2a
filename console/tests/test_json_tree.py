"""JSON documents as collapsible lists: paths, escaping, and documents that are too long or too deep."""

import orjson

from console import json_text


def test_each_value_has_the_path_that_leads_to_it() -> None:
    shown = json_text.tree(b'{"messages":[{"id":"A","text":{"body":"<b>Hi"}}],"none":[],"null":null}')
    assert shown is not None
    for words in (
        '<span class="member" data-path="messages[0].id">id</span> <code>&quot;A&quot;</code>',
        'data-path="messages[0].text.body">body</span> <code>&quot;&lt;b&gt;Hi&quot;</code>',
        'data-path="none">none</span> <code>[]</code>',
        "<summary>messages [1]</summary>",
    ):
        assert words in shown
    assert "<b>" not in shown


def test_a_hostile_name_is_no_markup() -> None:
    shown = json_text.tree(orjson.dumps({'"><script>': 1}))
    assert shown is not None
    assert "<script>" not in shown


def test_a_long_document_has_no_tree_and_a_deep_one_ends() -> None:
    assert json_text.tree(b"[" + b"1," * json_text.MOST_BYTES + b"1]") is None
    deep = json_text.tree(b"[" * 900 + b"7" + b"]" * 900)
    assert deep is not None
    assert deep.count("<details") == json_text.DEEPEST
    assert json_text.tree(b"7") is not None
