"""Lists of the Graph API are read page by page."""

import pytest

from gateway.upstream import blocking_client
from gateway.upstream.calls import UpstreamUnreachable
from tests.scripted_graph import ScriptedGraph


def test_a_list_whose_pages_never_end_is_read_to_its_hundredth_and_refused(graph: ScriptedGraph) -> None:
    graph.always_answers({"data": [], "paging": {"cursors": {"after": "a"}, "next": "https://graph/next"}})
    pages = blocking_client.pages(environment="live", token="t", path="/1/phone_numbers", fields=("id",))
    with pytest.raises(UpstreamUnreachable, match="endless_list"):
        list(pages)
    assert len(graph.received) == 100
    assert all("&after=a&" in call.query for call in graph.received[1:])
