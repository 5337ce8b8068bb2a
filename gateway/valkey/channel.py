"""Messages between processes by Valkey's publish and subscribe: they arrive within milliseconds.

Best effort: a message is lost while Valkey is away. Its receiver must find the same fact without it, only later.
"""

import threading
from collections.abc import Callable
from uuid import uuid4

import structlog

from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

WAIT_SECONDS = 10.0
"""How long one wait for a message lasts; in between, the connection is checked."""
AGAIN_SECONDS = 1.0
"""The wait before a connection that broke is made again."""


class Channel:
    """One kind of message. `received` is called with each message of another process.

    `missed` is called when the connection is there again after a break: messages may have been lost meanwhile. A
    process does not receive its own messages: when they come back, what they say may be out of date already.
    """

    def __init__(self, name: str, *, received: Callable[[str], None], missed: Callable[[], None]) -> None:
        self._name = name
        self._received = received
        self._missed = missed
        self._starting = threading.Lock()
        self._listens = False
        self._was_subscribed = False
        """Whether this is a subscription after one that broke; redis-py may have renewed it by itself."""
        self._never = threading.Event()
        self._sender = uuid4().hex
        """The name of the sender in each message."""

    def send(self, message: str) -> None:
        """Send a message to all other processes that listen. While Valkey is away it is only logged as lost."""
        try:
            valkey().publish(self._name, f"{self._sender} {message}")
        except VALKEY_UNAVAILABLE as error:
            log.warning("message_not_sent", channel=self._name, error=type(error).__name__)

    def listen(self) -> None:
        """Begin to receive in a thread of its own; does nothing a second time."""
        if self._listens:
            return
        with self._starting:
            if not self._listens:
                threading.Thread(target=self._run, name=f"channel {self._name}", daemon=True).start()
                self._listens = True

    def _run(self) -> None:
        while True:
            try:
                self._receive()
            except VALKEY_UNAVAILABLE as error:
                if not threading.main_thread().is_alive():
                    # The process ends, perhaps its Valkey first.
                    return
                log.warning("channel_lost", channel=self._name, error=type(error).__name__)
            except Exception:
                log.exception("channel_failed", channel=self._name)
            self._never.wait(AGAIN_SECONDS)

    def _receive(self) -> None:
        with valkey().pubsub() as subscription:
            subscription.subscribe(self._name)
            while True:
                message = subscription.get_message(timeout=WAIT_SECONDS)
                if message is None:
                    continue
                if message["type"] == "message":
                    sender, _, text = message["data"].decode().partition(" ")
                    if sender != self._sender:
                        self._received(text)
                elif message["type"] == "subscribe":
                    if self._was_subscribed:
                        self._missed()
                    self._was_subscribed = True
