"""Messages of the simulator, in memory and bounded: by id, by number, and by number and customer.

Each number has its own limit, so a busy number drops only its own oldest messages.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

import orjson

from simulator.world.records import Message

WINDOW_SECONDS = 24 * 3600
"""How long after a customer's message the business may send without a template."""
MOST_WINDOWS = 100_000
MOST_BYTES = 64 * 1024 * 1024
MOST_BYTES_OF_NUMBER = 32 * 1024 * 1024


class ConversationLog:
    """All messages, oldest first in each index."""

    def __init__(self) -> None:
        self._by_id: dict[str, Message] = {}
        self._bytes = 0
        self._bytes_of_number: defaultdict[str, int] = defaultdict(int)
        self._of_number: dict[str, deque[Message]] = {}
        self._of_customer: dict[tuple[str, str], deque[Message]] = {}
        self._last_inbound: dict[tuple[str, str], float] = {}
        """The time of the last message from a customer to a number within the window, ordered by time. An entry may
        outlive its message.
        """

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    def __getitem__(self, message_id: str) -> Message:
        return self._by_id[message_id]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._by_id.values())

    def get(self, message_id: str) -> Message | None:
        """The message with this id."""
        return self._by_id.get(message_id)

    def between(self, phone_number_id: str, customer: str) -> Iterable[Message]:
        """A conversation, oldest first."""
        return self._of_customer.get((phone_number_id, customer), ())

    def newest_first(
        self, phone_number_id: str | None = None, customer: str | None = None
    ) -> Iterator[Message]:
        """The messages of all numbers, of one number, or of one conversation."""
        if phone_number_id is None:
            return reversed(self._by_id.values())
        if customer is None:
            return reversed(self._of_number.get(phone_number_id, deque()))
        return reversed(self._of_customer.get((phone_number_id, customer), deque()))

    def latest(self, phone_number_id: str | None, *, limit: int) -> list[Message]:
        """The last message of each conversation, newest first."""
        found: dict[tuple[str, str], Message] = {}
        for message in self.newest_first(phone_number_id):
            found.setdefault((message.phone_number_id, message.customer), message)
            if len(found) >= limit:
                break
        return list(found.values())

    def add(self, message: Message, *, most: int, most_of_number: int) -> None:
        """Store a message. When the messages of its number exceed the limits, the number's oldest messages are dropped.
        When all messages together are too many, the oldest of all are dropped. When they have too many bytes, the
        oldest of the number with the most bytes are dropped.
        """
        self._by_id[message.id] = message
        message.size = len(orjson.dumps([message.body, message.rendered]))
        self._count_bytes(message, message.size)
        own = self._of_number.setdefault(message.phone_number_id, deque())
        own.append(message)
        self._of_customer.setdefault((message.phone_number_id, message.customer), deque()).append(message)
        if message.direction == "inbound" and message.body.get("type") != "system":
            self.open_window(message.phone_number_id, message.customer, message.timestamp)
        of_number = self._bytes_of_number
        while len(own) > most_of_number or of_number[message.phone_number_id] > MOST_BYTES_OF_NUMBER:
            self._remove(own[0])
        while len(self._by_id) > most:
            self._remove(next(iter(self._by_id.values())))
        while self._bytes > MOST_BYTES:
            self._remove(self._of_number[max(of_number, key=of_number.__getitem__)][0])

    def open_window(self, phone_number_id: str, customer: str, timestamp: float) -> None:
        """Record that a customer wrote to a number, or talked to it. Expired entries, and the oldest beyond the limit,
        are dropped.
        """
        windows = self._last_inbound
        windows[phone_number_id, customer] = max(
            timestamp, windows.pop((phone_number_id, customer), timestamp)
        )
        while len(windows) > MOST_WINDOWS or next(iter(windows.values())) < timestamp - WINDOW_SECONDS:
            del windows[next(iter(windows))]

    def is_open(self, phone_number_id: str, customer: str, at: float) -> bool:
        """Whether the customer wrote to the number within the window before the time `at`."""
        return at - self._last_inbound.get((phone_number_id, customer), 0.0) <= WINDOW_SECONDS

    def windows(self) -> list[tuple[str, str, float]]:
        """The customers who wrote within the window, ordered by the time of their last message."""
        return [(*key, timestamp) for key, timestamp in self._last_inbound.items()]

    def _count_bytes(self, message: Message, size: int) -> None:
        self._bytes += size
        self._bytes_of_number[message.phone_number_id] += size

    def _remove(self, message: Message) -> None:
        """Drop a message, which must be the oldest of its number and so also of its conversation."""
        self._by_id.pop(message.id, None)
        self._count_bytes(message, -message.size)
        self._of_number[message.phone_number_id].popleft()
        key = (message.phone_number_id, message.customer)
        conversation = self._of_customer[key]
        conversation.popleft()
        if not conversation:
            del self._of_customer[key]
