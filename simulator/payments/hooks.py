"""The provider's webhooks in Razorpay's form, with Razorpay's kind of signature. They are stored for inspection, and
posted until the service answers.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp

from simulator.config import Config

RETRY_SECONDS = (1, 2, 5, 10, 30, 60)
_KEPT = 2000


@dataclass(slots=True)
class Hook:
    """One webhook with its exact bytes."""

    event_id: str
    event: str
    body: str
    signature: str
    delivered: bool = False


def shown(value: Any) -> Any:
    """A row without the members that begin with `_`, which are internal to the book."""
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items() if not name.startswith("_")}
    return [shown(part) for part in value] if isinstance(value, list) else value


class Hooks:
    """The webhooks so far, and the tasks that post them. Without a URL they are only stored."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.url: str | None = config.payments_webhook_url
        self.sent: deque[Hook] = deque(maxlen=_KEPT)
        self._tasks: set[asyncio.Task[None]] = set()

    def publish(self, event: str, payload: dict[str, Any], scenario: str) -> None:
        """Create and send a webhook. Some scenarios lose the webhook, send it twice, or give it a wrong signature."""
        body = json.dumps(
            {
                "entity": "event",
                "account_id": "acc_simulator00000",
                "event": event,
                "contains": list(payload),
                "payload": {name: {"entity": shown(entity)} for name, entity in payload.items()},
                "created_at": int(time.time()),
            },
            separators=(",", ":"),
        )
        if scenario == "webhook_lost":
            return
        secret = "wrong" if scenario == "bad_signature" else self.config.razorpay_webhook_secret
        signature = hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
        event_id = secrets.token_hex(7)
        for _ in range(2 if scenario == "duplicate_webhook" else 1):
            hook = Hook(event_id, event, body, signature)
            self.sent.append(hook)
            if self.url:
                task = asyncio.get_running_loop().create_task(self._post(hook, self.url))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def view(self) -> list[dict[str, Any]]:
        """All webhooks, oldest first."""
        return [asdict(hook) for hook in self.sent]

    def clear(self) -> None:
        """Delete the webhooks and stop posting."""
        for task in self._tasks:
            task.cancel()
        self.sent.clear()

    async def _post(self, hook: Hook, url: str) -> None:
        headers = {
            "Content-Type": "application/json",
            "X-Razorpay-Signature": hook.signature,
            "X-Razorpay-Event-Id": hook.event_id,
        }
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for delay in (*RETRY_SECONDS, 0):
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                    async with session.post(url, data=hook.body.encode(), headers=headers) as answer:
                        if answer.status < 300:
                            hook.delivered = True
                            return
                await asyncio.sleep(delay)
