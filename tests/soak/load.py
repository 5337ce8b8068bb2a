"""Meta's notifications and the tenants' calls of a soak. Calls without a response are repeated."""

import argparse
import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import django
import orjson

from tests.soak.ledger import NO_ANSWER, TENANTS, Ledger, Receiving, open_ledger, tenant_of

NOTIFIERS, SENDERS = 6, 12
LARGEST_NOTIFICATION, LARGEST_BATCH = 30, 200
EVENTS_A_SECOND, SINGLES_A_SECOND = 500, 50
"""The maximum rates, so that the calls last as long as the faults. A busy machine is slower."""
SENT_AGAIN = 0.03
"""The fraction of notifications that Meta repeats after a 200."""
TRY_AGAIN_SECONDS = 0.1
NOT_NOW = {409, 429, 503}
NOT_YET_REPAIRED = 422
"""The response to a verification whose ping failed. The receiver may have another fault by then."""
ENDPOINT_SECONDS = 2


@dataclass(frozen=True)
class Customer:
    """The ids that a tenant's software and Meta use for the tenant."""

    waba_id: str
    phone_number_id: str
    authorised: dict[str, str]
    endpoint: str


class UnexpectedAnswerError(Exception):
    """A response that the documentation does not list for this call."""


def main() -> None:
    """Create the tenants, then send everything at the pace of the ledger. Raises `UnexpectedAnswerError`."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.load")
    parser.add_argument("ledger", type=Path)
    for name in ("events", "sends", "seed", "receivers"):
        parser.add_argument(name, type=int)
    parser.add_argument("ports", type=int, nargs="+")
    options = parser.parse_args()
    django.setup()
    ledger = open_ledger(options.ledger, events=options.events, sends=options.sends)
    customers = [_customer(number, at_port(options.receivers)) for number in range(TENANTS)]
    urls = [at_port(port) for port in options.ports]
    asyncio.run(_Load(ledger, random.Random(options.seed), customers, urls).run())


def at_port(port: int) -> str:
    """The URL of a port of loopback."""
    return f"http://127.0.0.1:{port}"


def _customer(number: int, receivers: str) -> Customer:
    from datetime import timedelta

    from benchmarks.equipment import seed
    from gateway.clock import now
    from phone_numbers.models import BusinessAccount, PhoneNumber
    from webhooks.models import Endpoint

    made = seed.business(number + 1)
    # Meta in a soak supports only messages, so no sync may read the account during the run.
    BusinessAccount.objects.filter(waba_id=made.waba_id).update(
        next_sync_at=now() + timedelta(days=2), token_checked_at=now()
    )
    PhoneNumber.objects.filter(phone_number_id=made.phone_number_id).update(throughput_level="HIGH")
    endpoint_id, _ = seed.endpoint(made.tenant_id, f"{receivers}/{number}")
    Endpoint.objects.filter(id=endpoint_id).update(timeout_seconds=ENDPOINT_SECONDS)
    return Customer(
        made.waba_id,
        made.phone_number_id,
        {"Authorization": f"Bearer {made.api_key}"},
        str(endpoint_id),
    )


class _Load:
    """Tasks that each make one call after another until all events and messages are sent."""

    def __init__(
        self,
        ledger: Ledger,
        chance: random.Random,
        customers: Sequence[Customer],
        urls: Sequence[str],
    ) -> None:
        self.ledger, self.chance, self.customers = ledger, chance, customers
        self.urls = urls
        self.next_event, self.next_single, self.next_item = 0, 0, ledger.singles

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as self.session,
            asyncio.TaskGroup() as load,
        ):
            repairing = [load.create_task(self._repair(place)) for place in range(TENANTS)]
            tasks = [load.create_task(self._notify()) for _ in range(NOTIFIERS)]
            tasks += [load.create_task(self._send_singles()) for _ in range(SENDERS)]
            tasks += [load.create_task(self._send_batches(customer)) for customer in self.customers]
            await asyncio.gather(*tasks)
            # The repairs continue until the controller ends this process, so that every circuit can close.
            await asyncio.gather(*repairing)

    # --- The upstream's notifications

    async def _notify(self) -> None:
        from django.conf import settings

        from messaging.tests.incoming import notification, signature_of

        while (
            first := await self._until_allowed(lambda: self.next_event, range(self.ledger.events))
        ) is not None:
            end = min(first + self.chance.randint(1, LARGEST_NOTIFICATION), self.ledger.events)
            self.next_event = end
            body = notification(*self._entries(first, end))
            headers = {
                "Content-Type": "application/json",
                "X-Hub-Signature-256": signature_of(body, settings.META_APP_SECRET),
            }
            while await self._status("POST", "/upstream/webhook", body, headers) != 200:
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            for number in range(first, end):
                self.ledger.accepted[number] = 1
            self.ledger.events_done += end - first
            if self.chance.random() < SENT_AGAIN:
                await self._status("POST", "/upstream/webhook", body, headers)
            await asyncio.sleep((end - first) * NOTIFIERS / EVENTS_A_SECOND)

    def _entries(self, first: int, end: int) -> list[tuple[str, list[Any]]]:
        """The events as entries of one notification, one entry for each tenant."""
        from messaging.tests.incoming import text_change

        wamids: dict[int, list[str]] = {}
        for number in range(first, end):
            wamids.setdefault(tenant_of(number), []).append(f"soak{number}")
        return [
            (self.customers[tenant].waba_id, [text_change(self.customers[tenant].phone_number_id, *own)])
            for tenant, own in wamids.items()
        ]

    # --- The customers' messages

    async def _send_singles(self) -> None:
        """Send the single messages. Every second one has an Idempotency-Key and is repeated until it is answered."""
        numbers = range(self.ledger.singles)
        while (number := await self._until_allowed(lambda: self.next_single, numbers)) is not None:
            self.next_single += 1
            customer = self.customers[number % TENANTS]
            body = orjson.dumps({"from": customer.phone_number_id, **self._message(number)})
            headers = {"Content-Type": "application/json", **customer.authorised}
            has_key = bool(self.chance.getrandbits(1))
            if has_key:
                headers["Idempotency-Key"] = f"soak-{number}"
            status = await self._status("POST", "/v1/messages", body, headers)
            while has_key and status in {NO_ANSWER, *NOT_NOW}:
                await asyncio.sleep(TRY_AGAIN_SECONDS)
                status = await self._status("POST", "/v1/messages", body, headers)
            self.ledger.statuses[number] = status
            self.ledger.sends_done += 1
            await asyncio.sleep(SENDERS / SINGLES_A_SECOND)

    async def _send_batches(self, customer: Customer) -> None:
        """Send one batch after another. The `client_ref` of a batch names the first message, so a repeated call
        creates no second batch.
        """
        headers = {"Content-Type": "application/json", **customer.authorised}
        numbers = range(self.ledger.singles, self.ledger.sends)
        while (first := await self._until_allowed(lambda: self.next_item, numbers)) is not None:
            end = min(first + self.chance.randint(1, LARGEST_BATCH), self.ledger.sends)
            self.next_item = end
            body = orjson.dumps(
                {
                    "from": customer.phone_number_id,
                    "client_ref": f"soak-{first}",
                    "messages": [self._message(number) for number in range(first, end)],
                }
            )
            made = await self._repeated("POST", "/v1/messages/batch", body, headers)
            while made["status"] != "completed":
                await asyncio.sleep(2 * TRY_AGAIN_SECONDS)
                made = await self._repeated("GET", f"/v1/messages/batch/{made['id']}", None, headers)
            self.ledger.sends_done += end - first

    @staticmethod
    def _message(number: int) -> dict[str, Any]:
        return {"to": f"+9170{number:08d}", "type": "text", "text": {"body": f"soak send {number}"}}

    async def _repair(self, place: int) -> None:
        """Verify an endpoint after each fault of its receiver. The verification closes the circuit at once."""
        customer, was_ill = self.customers[place], False
        while True:
            is_ill = self.ledger.receiving[place] != Receiving.WELL
            if was_ill and not is_ill:
                await self._repeated(
                    "POST", f"/v1/webhooks/{customer.endpoint}/verify", b"", customer.authorised
                )
            was_ill = is_ill
            await asyncio.sleep(0.5)

    # --- Calls

    async def _until_allowed(self, place: Callable[[], int], numbers: range) -> int | None:
        """Wait until the pace allows the next number, and return the number. None after the last."""
        while place() < numbers.stop:
            if place() - numbers.start < len(numbers) * self.ledger.allowed:
                return place()
            await asyncio.sleep(0.02)
        return None

    async def _repeated(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        """Repeat a call until it succeeds. Returns the JSON of the response."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with self._called(method, path, body, headers) as (status, answer):
                    if status in {200, 202}:
                        return orjson.loads(answer)
                    self._expect(status, answer, {NOT_YET_REPAIRED, *NOT_NOW})
            await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def _status(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
        """Make one call. Returns the status, or `NO_ANSWER` when the connection broke."""
        try:
            async with self._called(method, path, body, headers) as (status, answer):
                self._expect(status, answer, {200, 500, 502, *NOT_NOW})
                return status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return NO_ANSWER

    @contextlib.asynccontextmanager
    async def _called(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> AsyncIterator[tuple[int, bytes]]:
        url = self.chance.choice(self.urls) + path
        async with self.session.request(method, url, data=body, headers=headers) as answer:
            yield answer.status, await answer.read()

    @staticmethod
    def _expect(status: int, answer: bytes, known: set[int]) -> None:
        # Only a 500 from Meta (`source: meta`) is expected. A 500 from the service is a bug.
        if status not in known or (status == 500 and b'"source":"meta"' not in answer):
            raise UnexpectedAnswerError(f"{status}: {answer[:300].decode(errors='replace')}")


if __name__ == "__main__":
    main()
