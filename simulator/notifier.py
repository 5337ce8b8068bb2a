"""Notifier: posts notifications to the gateway until the gateway answers 200. They are batched, escaped and signed like
Meta's.

Callers pass one change to `publish`. Notifications are posted concurrently, at least once, in no guaranteed order. The
most specific callback is used: the number's override, the account's override, or the app's callback. Only message
fields can be overridden (upstream fact 1.6).
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import aiohttp

from simulator.config import Config
from simulator.settings import Notifications
from simulator.world.state import State

logger = logging.getLogger(__name__)

# Entries of management fields have `entry[].time`, the time of sending. Entries of `messages` do not (upstream fact
# 0.12).
_WITHOUT_TIME = {"messages"}
_OVERRIDABLE = {"messages", "message_echoes", "smb_message_echoes"}
MAX_BATCH = 1000
MOST_ANSWER_BYTES = 1 << 20
"""The longest answer that is read. All sandboxes share the simulator's memory."""


@dataclass(slots=True)
class Notification:
    """One POST: the exact bytes, the callback, and the number of attempts."""

    url: str
    body: bytes
    attempt: int = 0


def wire_bytes(payload: Any) -> bytes:
    r"""JSON in Meta's form: non-ASCII as `\uXXXX`, `/` as `\/` (upstream fact 3.1)."""
    return json.dumps(payload, ensure_ascii=True, separators=(",", ":")).replace("/", "\\/").encode()


def signature(secret: str, body: bytes) -> str:
    """The value of `X-Hub-Signature-256` over the raw bytes."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Notifier:
    """The queue of notifications and the tasks that post them."""

    def __init__(self, config: Config, settings: Notifications, state: State) -> None:
        self._config = config
        self._settings = settings
        self._state = state
        self._ready: deque[Notification] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._pending: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._flushes: dict[str, asyncio.TimerHandle] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._posts: set[asyncio.Task[None]] = set()
        self._pump_task: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self.counters = dict.fromkeys(
            ("published", "posted", "delivered", "retried", "given_up", "dropped"), 0
        )

    async def start(self) -> None:
        """Open the connections and start posting."""
        self._session = aiohttp.ClientSession(
            # Resolve names for each connection, because a recreated container has another address.
            connector=aiohttp.TCPConnector(limit=0, resolver=aiohttp.ThreadedResolver(), use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._pump_task = asyncio.create_task(self._pump())

    async def stop(self) -> None:
        """Stop posting. Waiting notifications are lost, because the queue is only in memory."""
        self.clear()
        tasks = [*self._posts, *([self._pump_task] if self._pump_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session:
            await self._session.close()

    def clear(self) -> None:
        """Drop all waiting notifications and retries, and reset the counters."""
        for task in self._posts:
            task.cancel()
        self.counters = dict.fromkeys(self.counters, 0)
        for timer in (*self._timers, *self._flushes.values()):
            timer.cancel()
        self._timers.clear()
        self._flushes.clear()
        self._pending.clear()
        self._ready.clear()

    def backlog(self) -> dict[str, int]:
        """How many notifications are ready to be posted, in flight, and delayed or waiting for a retry."""
        return {"ready": len(self._ready), "in_flight": len(self._posts), "waiting": len(self._timers)}

    def publish(
        self,
        *,
        waba_id: str,
        field: str,
        value: dict[str, Any],
        entry_id: str | None = None,
        url: str | None = None,
    ) -> None:
        """Queue one change of an account. `entry_id` differs from the account for partner events. `url` replaces the
        configured callback.
        """
        self.counters["published"] += 1
        subscription = self._state.app_subscription
        if url is None and subscription and field not in subscription["fields"]:
            return
        target = url or self.callback_for(waba_id, field, value)
        # Meta puts `value` before `field`.
        self._pending.setdefault(target, []).append((entry_id or waba_id, {"value": value, "field": field}))
        size = min(max(1, self._settings.batch_size), MAX_BATCH)
        if len(self._pending[target]) >= size:
            self._flush(target)
        elif target not in self._flushes:
            self._flushes[target] = asyncio.get_running_loop().call_later(
                self._settings.batch_wait_ms / 1000, self._flush, target
            )

    def callback_for(self, waba_id: str, field: str, value: dict[str, Any]) -> str:
        """The callback for a change. The most specific override is used."""
        if field in _OVERRIDABLE:
            number = self._state.numbers.get(value.get("metadata", {}).get("phone_number_id", ""))
            if number and number.override_callback_uri:
                return number.override_callback_uri
            account = self._state.accounts.get(waba_id)
            if account and account.override_callback_uri:
                return account.override_callback_uri
        subscription = self._state.app_subscription
        return str(subscription["callback_url"]) if subscription else self._config.callback_url

    def _flush(self, target: str) -> None:
        timer = self._flushes.pop(target, None)
        if timer:
            timer.cancel()
        changes = self._pending.pop(target, [])
        if not changes:
            return
        entries: dict[tuple[str, bool], dict[str, Any]] = {}
        for entry_id, change in changes:
            timed = change["field"] not in _WITHOUT_TIME
            entry = entries.get((entry_id, timed))
            if entry is None:
                entry = (
                    {"id": entry_id, "time": int(time.time()), "changes": []}
                    if timed
                    else {"id": entry_id, "changes": []}
                )
                entries[entry_id, timed] = entry
            entry["changes"].append(change)
        payload = {"object": "whatsapp_business_account", "entry": list(entries.values())}
        self.send(target, wire_bytes(payload))

    def send(self, url: str, body: bytes) -> None:
        """Queue exact bytes, with the active faults applied."""
        settings = self._settings
        delay = settings.delay_ms / 1000
        if settings.reorder and random.random() < settings.reorder:
            delay += random.uniform(0, 2)
        self._enqueue(Notification(url, body), delay)
        if settings.duplicate and random.random() < settings.duplicate:
            self._enqueue(Notification(url, body), delay + random.uniform(0, 0.5))

    def _enqueue(self, notification: Notification, delay: float) -> None:
        if len(self._ready) + len(self._timers) >= self._settings.queue_limit:
            self.counters["dropped"] += 1
            return
        if delay <= 0:
            self._ready.append(notification)
            self._wake.set()
            return

        def due() -> None:
            self._timers.discard(timer)
            self._ready.append(notification)
            self._wake.set()

        timer = asyncio.get_running_loop().call_later(delay, due)
        self._timers.add(timer)

    def resume(self) -> None:
        """Apply changed settings."""
        self._wake.set()

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ready and not self._settings.paused:
                if len(self._posts) >= max(1, self._settings.concurrency):
                    self._room.clear()
                    await self._room.wait()
                    continue
                task = asyncio.create_task(self._post(self._ready.popleft()))
                self._posts.add(task)
                task.add_done_callback(self._posted)

    def _posted(self, task: asyncio.Task[None]) -> None:
        self._posts.discard(task)
        self._room.set()

    async def _post(self, notification: Notification) -> None:
        self.counters["posted"] += 1
        if await self._accepted(notification):
            self.counters["delivered"] += 1
            return
        schedule = self._settings.retry_seconds
        if notification.attempt >= len(schedule):
            self.counters["given_up"] += 1
            return
        delay = schedule[notification.attempt]
        notification.attempt += 1
        self.counters["retried"] += 1
        self._enqueue(notification, delay)

    async def _accepted(self, notification: Notification) -> bool:
        status, _ = await self.ask(
            notification.url, notification.body, seconds=self._settings.timeout_ms / 1000
        )
        return status == 200

    async def ask(self, url: str, body: bytes, *, seconds: float) -> tuple[int, bytes]:
        """Post signed bytes. Returns the status and body of the answer. The status is 0 if no answer came in time, and
        for a body beyond `MOST_ANSWER_BYTES`.
        """
        assert self._session is not None
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "facebookexternalua",
            "X-Hub-Signature-256": signature(self._config.app_secret, body),
        }
        timeout = aiohttp.ClientTimeout(total=seconds)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False, timeout=timeout
            ) as response:
                content = bytearray()
                async for some in response.content.iter_any():
                    content += some
                    if len(content) > MOST_ANSWER_BYTES:
                        return 0, b""
                return response.status, bytes(content)
        return 0, b""

    async def verify_callback(self, url: str, verify_token: str) -> str | None:
        """Send the challenge to a callback, as Meta does before using it. Returns the reason for a failure, or None."""
        assert self._session is not None
        challenge = str(random.randint(10**8, 10**10))
        query = {"hub.mode": "subscribe", "hub.challenge": challenge, "hub.verify_token": verify_token}
        try:
            async with self._session.get(
                url, params=query, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=10)
            ) as response:
                answer = (await response.content.read(1024)).decode(errors="replace")
                if response.status != 200:
                    return f"HTTP Status Code = {response.status}; HTTP Message = {response.reason}"
                return None if answer == challenge else "The challenge did not match."
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return "The URL could not be reached."
