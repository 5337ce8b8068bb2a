"""Nodes of the Graph API are read by field names, and lists page by page."""

from typing import Any

import pytest

from gateway.upstream import blocking_client
from gateway.upstream.calls import GraphAnswer, UpstreamUnreachable
from tests.scripted_graph import ScriptedGraph


def pages() -> Any:
    return blocking_client.pages(environment="live", token="t", path="1/phone_numbers", fields=("id",))


def retired(name: str) -> dict[str, Any]:
    return {"error": {"message": f"(#100) Tried accessing nonexisting field ({name})", "code": 100}}


def fields_of(graph: ScriptedGraph) -> list[str]:
    """The fields that each call named."""
    return [call.query.partition("fields=")[2].partition("&")[0] for call in graph.received]


def test_a_list_whose_pages_never_end_is_read_to_its_hundredth_and_refused(graph: ScriptedGraph) -> None:
    graph.always_answers({"data": [], "paging": {"cursors": {"after": "a"}, "next": "https://graph/next"}})
    with pytest.raises(UpstreamUnreachable, match="endless_list"):
        list(pages())
    assert len(graph.received) == 100
    assert all("&after=a&" in call.query for call in graph.received[1:])


@pytest.mark.parametrize(
    "last",
    [
        {"data": []},
        {"data": [], "paging": 5},
        {"data": [], "paging": {"cursors": {"after": "b"}}},
        {"data": [], "paging": {"next": "https://graph/next"}},
        {"data": [], "paging": {"next": "https://graph/next", "cursors": {"after": 5}}},
    ],
)
def test_a_list_ends_with_the_page_that_names_no_next_one(graph: ScriptedGraph, last: dict[str, Any]) -> None:
    path = "/1/phone_numbers"
    graph.answers("GET", path, {"data": [], "paging": {"cursors": {"after": "a"}, "next": "https://x"}})
    graph.answers("GET", path, last)
    assert [page.json() for page in pages()][1:] == [last]
    assert "limit=100" in graph.received[0].query
    assert "after=" not in graph.received[0].query


def test_a_list_ends_with_its_first_error(graph: ScriptedGraph) -> None:
    paging = {"cursors": {"after": "a"}, "next": "https://x"}
    graph.answers("GET", "/1/phone_numbers", {"error": {"code": 4}, "paging": paging}, status=400)
    assert [page.status for page in pages()] == [400]


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([(400, retired("b")), (200, {"a": 1})], ["a%2Cb%2Cc", "a%2Cc"]),
        ([(400, retired("b")), (400, retired("c")), (200, {})], ["a%2Cb%2Cc", "a%2Cc", "a"]),
        ([(400, retired("b")), (400, retired("c")), (400, retired("a"))], ["a%2Cb%2Cc", "a%2Cc", "a"]),
        ([(400, retired("d"))], ["a%2Cb%2Cc"]),
        ([(200, retired("b"))], ["a%2Cb%2Cc"]),
        ([(400, {"error": "nonexisting field (b)"})], ["a%2Cb%2Cc"]),
        ([(400, {"error": {"code": 190}})], ["a%2Cb%2Cc"]),
    ],
)
def test_a_node_is_read_without_the_fields_that_meta_has_retired(
    graph: ScriptedGraph, answers: list[tuple[int, Any]], asked: list[str]
) -> None:
    for status, body in answers:
        graph.answers("GET", "/1", body, status=status)
    answer = blocking_client.read(environment="live", token="t", path="1", fields=("a", "b", "c"))
    assert (answer.status, answer.json()) == answers[-1]
    assert fields_of(graph) == asked


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"data":{}}', b'{"data":null}', b"<p>"])
def test_an_answer_without_a_list_does_not_count_as_an_empty_one(body: bytes) -> None:
    with pytest.raises(UpstreamUnreachable, match="unreadable_answer"):
        blocking_client.rows(GraphAnswer(200, body, {}, 1.0))
    assert blocking_client.rows(GraphAnswer(200, b'{"data":[{"id":"1"},5,null]}', {}, 1.0)) == [{"id": "1"}]
