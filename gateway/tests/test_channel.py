"""Messages between processes: received while Valkey is available. After an interruption, `missed` is called."""

import queue

import pytest

from gateway.valkey.channel import Channel
from gateway.valkey.connection import valkey

SECONDS = 10.0


def first_news(channel: Channel, received: "queue.Queue[str]") -> str:
    """Send until a message is received, because a subscription takes a moment."""
    for attempt in range(int(SECONDS / 0.05)):
        channel.send(f"news {attempt}")
        try:
            return received.get(timeout=0.05)
        except queue.Empty:
            continue
    raise AssertionError("nothing was received")


@pytest.fixture
def connections() -> set[int]:
    """The subscribed connections, without the test's own connection."""
    return {int(client["id"]) for client in valkey().client_list(_type="pubsub")}


def test_after_a_break_news_are_received_again_and_some_are_reported_missed(connections: set[int]) -> None:
    received: queue.Queue[str] = queue.Queue()
    missed: queue.Queue[None] = queue.Queue()
    Channel("news:test", received=received.put, missed=lambda: missed.put(None)).listen()
    other = Channel("news:test", received=received.put, missed=lambda: missed.put(None))
    assert first_news(other, received).startswith("news")
    assert missed.empty(), "nothing can be missed before the first subscription"
    for client in valkey().client_list(_type="pubsub"):
        if int(client["id"]) not in connections:
            valkey().client_kill_filter(_id=client["id"])
    missed.get(timeout=SECONDS)
    assert first_news(other, received).startswith("news")


def test_a_process_does_not_receive_its_own_news() -> None:
    received: queue.Queue[str] = queue.Queue()
    channel, other = (Channel("news:self", received=received.put, missed=lambda: None) for _ in range(2))
    channel.listen()
    assert first_news(other, received).startswith("news")
    channel.send("own")
    other.send("last")
    while (news := received.get(timeout=SECONDS)) != "last":
        assert news.startswith("news")
