"""Messages between processes through Valkey's publish and subscribe. They arrive within milliseconds.

Best effort: messages are lost while Valkey is unavailable. So receivers must later find the same fact in another way.
"""

import threading
from collections.abc import Callable
from uuid import uuid4

import structlog

from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

WAIT_SECONDS = 10.0
"""How long one wait for a message lasts. The connection is checked between two waits."""
AGAIN_SECONDS = 1.0
"""The wait before a broken connection is reopened."""


class Channel:
    """One kind of message. `received` is called with each message of another process.

    `missed` is called when the connection works again after an interruption, because messages may have been lost. A
    process does not receive its own messages, which may be out of date on arrival.
    """

    def __init__(self, name: str, *, received: Callable[[str], None], missed: Callable[[], None]) -> None:
        self._name = name
        self._received = received
        self._missed = missed
        self._starting = threading.Lock()
        self._listens = False
        self._was_subscribed = False
        """Whether the process was subscribed before. If so, a new subscription follows an interruption, even if
        redis-py renewed the subscription by itself.
        """
        self._never = threading.Event()
        self._sender = uuid4().hex
        """The sender's name in each message."""

    def send(self, message: str) -> None:
        """Send a message to all other listening processes. While Valkey is unavailable, the loss is only logged."""
        try:
            valkey().publish(self._name, f"{self._sender} {message}")
        except VALKEY_UNAVAILABLE as error:
            log.warning("message_not_sent", channel=self._name, error=type(error).__name__)

    def listen(self) -> None:
        """Start receiving in a thread. A second call does nothing."""
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
                    # The process is ending. Its Valkey may have ended first.
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
