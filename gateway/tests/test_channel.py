"""Messages between processes: received while Valkey is available. After an interruption, `missed` is called."""

import queue
from typing import Any

import pytest
import redis

from gateway.valkey import channel as channels
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


def test_news_whose_work_fails_end_no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "AGAIN_SECONDS", 0.01)
    received: queue.Queue[str] = queue.Queue()
    missed: queue.Queue[None] = queue.Queue()
    failures = [ValueError()]

    def work(news: str) -> None:
        if failures:
            raise failures.pop()
        received.put(news)

    Channel("news:failing", received=work, missed=lambda: missed.put(None)).listen()
    other = Channel("news:failing", received=received.put, missed=lambda: None)
    assert first_news(other, received).startswith("news")
    assert not failures
    missed.get(timeout=SECONDS)


def test_without_valkey_news_are_lost_and_nothing_else_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Any:
        raise redis.exceptions.ConnectionError

    monkeypatch.setattr(channels, "valkey", away)
    Channel("news:lost", received=print, missed=lambda: None).send("news")
