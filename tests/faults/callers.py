"""Clients and Meta that call continuously during a fault, and the responses that they got."""

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar

import requests
from django.conf import settings

from messaging.tests.incoming import notification, signature_of, text_change
from phone_numbers.models import PhoneNumber

NO_ANSWER = 0
"""The status of a call whose connection broke."""


@dataclass(frozen=True)
class Answered:
    """A response to a caller, and the name of the call."""

    name: str
    response: requests.Response = field(repr=False)
    at: float

    @property
    def status(self) -> int:
        return self.response.status_code


class Callers:
    """Clients and Meta, in threads that call until they are stopped.

    Each call goes to one of the URLs, chosen at random. A connection may break only while `may_break` is true. The
    caller of a send then does not know the outcome, and repeats the call if it has a key.
    """

    all: "ClassVar[list[Callers]]" = []

    def __init__(self, urls: str | Sequence[str], token: str, number: PhoneNumber) -> None:
        self.urls = [urls] if isinstance(urls, str) else urls
        self.number, self.waba_id = number, number.account.waba_id
        self.may_break = False
        self.authorised = {"Authorization": f"Bearer {token}"}
        self.answered: dict[str, list[Answered]] = {}
        self.errors: list[Exception] = []
        self.stopped = threading.Event()
        self.threads: list[threading.Thread] = []
        self._abandoned = threading.Event()
        self.all.append(self)

    def start(self, *reads: str) -> None:
        """Start all callers. Some read the paths in `reads`."""
        for _ in range(2):
            self.more_sends()
            self._repeat("notifications", self._notify)
        for path in reads:
            self._repeat("reads", lambda name, path=path: self._call("reads", name, "GET", path), every=0.2)
        self._repeat("health", lambda name: self._call("health", name, "GET", "/v1/health"), every=0.2)

    def start_batch(self, batch_number: PhoneNumber, count: int, receiver_url: str) -> str:
        """Create the receiver's endpoint, then a batch with a message to each of `count` customers. Returns its id."""

        def post(path: str, body: Any) -> Any:
            answer = requests.post(self.urls[0] + path, json=body, headers=self.authorised, timeout=30)
            assert answer.ok, answer.text
            return answer.json()

        post("/v1/webhooks", {"url": receiver_url})
        messages = [
            {"to": f"+91{9000000000 + place}", "type": "text", "text": {"body": f"Message {place}"}}
            for place in range(count)
        ]
        created = post("/v1/messages/batch", {"from": batch_number.phone_number_id, "messages": messages})
        return str(created["id"])

    def more_sends(self) -> None:
        """Start two more clients that send, one of them with keys."""
        self._repeat("sends with a key", self._send_with_key)
        self._repeat("sends without a key", self.send)

    def stop(self) -> None:
        """Let every caller finish its call. Fails when a call got no response."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(90)
        assert self.errors == []

    @classmethod
    def end_all(cls) -> None:
        """End the callers of a failed test. Otherwise they continue during all later tests."""
        for callers in cls.all:
            callers.may_break = True
            callers.stopped.set()
            callers._abandoned.set()
        for callers in cls.all:
            for thread in callers.threads:
                thread.join(90)
        cls.all.clear()

    def kinds(self, status: int, *, since: float) -> set[str]:
        """The kinds of calls that got this status since a time."""
        return {
            kind
            for kind, answered in self.answered.items()
            if any(each.status == status and each.at >= since for each in reversed(answered))
        }

    def ok(self, kind: str) -> list[Answered]:
        return [each for each in self.answered[kind] if each.status == 200]

    def assert_sends(self, sent: Counter[str], *, reasons: Set[str] = frozenset({"interrupted"})) -> None:
        """Check that a message was sent once if its call got a 200, and was not sent if a call without a key got a 503.

        If a call with a key got a 502, the response must name one of `reasons`.
        """
        for kind in ("sends without a key", "sends with a key"):
            assert [each.name for each in self.ok(kind) if sent[each.name] != 1] == []
        refused = {each.name for each in self.answered["sends without a key"] if each.status == 503}
        assert [name for name in refused if sent[name]] == []
        for each in self.answered["sends with a key"]:
            if each.status == 502:
                assert each.response.json()["error"]["details"]["reason"] in reasons

    def have_outbound_events(self, events: list[Any]) -> bool:
        """Whether the event of each send that got a 200 has arrived.

        If the database missed a send, the send journal adds the event up to half a minute later.
        """
        arrived = {event["wamid"] for event in events if event["type"] == "message.outbound"}
        answered = [each for kind in ("sends without a key", "sends with a key") for each in self.ok(kind)]
        return {each.response.json()["messages"][0]["id"] for each in answered} <= arrived

    def assert_outbound_events(self, events: list[Any]) -> None:
        """Check that the event of each send that got a 200 has arrived."""
        assert self.have_outbound_events(events)

    def assert_notifications(self, events: list[Any]) -> None:
        """Check that each notification that got a 200 arrived as an event, and that repeats of an event have the same
        id.
        """
        arrived = {event["dedupe_key"]: event["id"] for event in events if event["type"] == "message.inbound"}
        accepted = {each.name for each in self.ok("notifications")}
        assert {f"msg:{name}" for name in accepted} == set(arrived)
        assert len({event["id"] for event in events}) == len({event["dedupe_key"] for event in events})

    def _repeat(self, kind: str, once: Callable[[str], Any], *, every: float = 0.05) -> None:
        """Start a caller, which waits `every` seconds between its calls."""
        self.answered.setdefault(kind, [])
        caller = len(self.threads)

        def repeatedly() -> None:
            count = 0
            try:
                while not self.stopped.wait(every):
                    count += 1
                    once(f"{kind} {caller}-{count}")
            except Exception as error:  # noqa: BLE001 - the test fails with it
                self.errors.append(error)

        thread = threading.Thread(target=repeatedly)
        self.threads.append(thread)
        thread.start()

    def _call(self, kind: str, name: str, method: str, path: str, **request: Any) -> int:
        request["headers"] = self.authorised | request.get("headers", {})
        try:
            response = requests.request(method, random.choice(self.urls) + path, timeout=60, **request)
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            if not self.may_break:
                raise
            return NO_ANSWER
        # `raw` keeps the socket open, and each response is kept until the end of the test.
        response.raw = None
        self.answered.setdefault(kind, []).append(Answered(name, response, time.monotonic()))
        return response.status_code

    def send(self, name: str, kind: str = "sends without a key", **headers: str) -> int:
        # Each message goes to a different customer, because Meta throttles many messages to one customer.
        customer = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10**10
        body = {
            "from": self.number.phone_number_id,
            "to": f"+91{customer:010d}",
            "type": "text",
            "text": {"body": name},
        }
        return self._call(kind, name, "POST", "/v1/messages", json=body, headers=headers)

    def _send_with_key(self, name: str) -> None:
        key = {"Idempotency-Key": name.replace(" ", "-")}
        while self.send(name, "sends with a key", **key) in {NO_ANSWER, 409, 503}:
            if self._abandoned.wait(0.2):
                break

    def _notify(self, name: str) -> None:
        body = notification((self.waba_id, [text_change(self.number.phone_number_id, name)]))
        signed = {
            "Content-Type": "application/json",
            "X-Hub-Signature-256": signature_of(body, settings.META_APP_SECRET),
        }
        path = "/upstream/webhook"
        while self._call("notifications", name, "POST", path, data=body, headers=signed) != 200:
            if self._abandoned.wait(0.2):
                break
