"""The asynchronous client. `client.py` is generated from `async_client.py` by `make sdks`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, cast

import httpx

from whabuzz import async_resources, types
from whabuzz.async_stream import AsyncEventStream
from whabuzz.async_transport import AsyncTransport
from whabuzz.batches import FINAL, MOST, bodies_async, stored
from whabuzz.calls import TIMEOUT, Call, Options, raw_call, stream_options
from whabuzz.errors import WhabuzzError
from whabuzz.replies import reply_body, reply_key

POLL_SECONDS = 2.0


class AsyncMessages(async_resources.AsyncMessages):
    """Single messages, replies and batches."""

    async def reply(
        self,
        event: types.MessageInboundEvent,
        content: str | Mapping[str, Any],
        *,
        quote: bool = False,
        name: str = "",
    ) -> types.SentMessage:
        """Answer a customer's message. An event that is delivered twice within 24 hours is answered once.

        Store each event's `dedupe_key`, because retries and replays can come later. Several answers to one event need
        a `name` each.
        """
        return await self.send(
            reply_body(event, content, quote=quote), idempotency_key=reply_key(event, name)
        )

    async def send_batch(
        self,
        rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        from_: str,
        client_ref: str,
        size: int = MOST,
        skip_opted_out: bool = False,
    ) -> list[types.Batch]:
        """Send any number of messages, as batches of up to 10,000 and 30 MiB. Each row is a message without `from`.

        A repeated call with the same rows sends nothing twice. Give each row a `message_ref`, your own name for the
        message. Then you can send any rows again after an interruption, and each message is sent only once within 30
        days. With `skip_opted_out`, customers who opted out of marketing are skipped. Raises BatchDiffers.
        """
        made = bodies_async(
            rows, from_=from_, client_ref=client_ref, size=size, skip_opted_out=skip_opted_out
        )
        return [stored(await self.create_batch(body)) async for body in made]

    async def wait_for_batch(self, batch_id: str, *, seconds: float = 600.0) -> types.Batch:
        """Wait until a batch is completed or cancelled, and return it. Raises TimeoutError after this many seconds."""
        deadline = time.monotonic() + seconds
        while (batch := await self.get_batch(batch_id))["status"] not in FINAL:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Batch {batch_id} is still {batch['status']}.")
            await asyncio.sleep(POLL_SECONDS)
        return batch


class AsyncMedia(async_resources.AsyncMedia):
    """Files that you send, and files that customers send."""

    async def describe(self, media_id: str) -> types.MediaDescription:
        """WhatsApp's description of a file: its type, size and hash."""
        call = Call("GET", self._path("/v1/media/{media_id}", media_id=media_id), query={"meta": True})
        return cast("types.MediaDescription", await self._json(call))


class AsyncEvents(async_resources.AsyncEvents):
    """Stored events, and events as they happen."""

    def listen(
        self, *, type: str | None = None, phone_number_id: str | None = None, after: str | None = None
    ) -> AsyncEventStream:
        """Receive events as they happen. The stream continues at `after`, the last `place` of an earlier stream."""
        return AsyncEventStream(
            self._transport.http, **stream_options(self._transport.settings, type, phone_number_id, after)
        )


class AsyncWhabuzz(async_resources.AsyncResources):
    """A client of the API with one key. Use it in `async with`, or call `close` at the end."""

    messages: AsyncMessages
    media: AsyncMedia
    events: AsyncEvents

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        tenant_id: str | None = None,
        timeout: httpx.Timeout | float | None = None,
        max_retries: int = 4,
        headers: Mapping[str, str] | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        """Create a client. A given `http_client` is neither changed nor closed, and keeps its own time-outs."""
        self._use(Options(api_key, base_url, tenant_id, timeout, max_retries, headers or {}), http_client)

    def _use(self, options: Options, http_client: httpx.AsyncClient | None) -> None:
        transport = AsyncTransport(http_client or httpx.AsyncClient(timeout=TIMEOUT), options.settings())
        super().__init__(transport)
        self._options, self._transport, self._is_owner = options, transport, http_client is None
        self.messages, self.media = AsyncMessages(transport), AsyncMedia(transport)
        self.events = AsyncEvents(transport)

    @classmethod
    def from_profile(cls, profile: str = "default") -> AsyncWhabuzz:
        """A client with the key from the environment variables, else from `whabuzz login`. Raises WhabuzzError."""
        from whabuzz.cli.profiles import Profiles

        credentials = Profiles().credentials(profile)
        if credentials is None:
            raise WhabuzzError("There is no such profile: run `whabuzz login`.")
        return cls(credentials.api_key, credentials.base_url)

    def for_tenant(self, tenant_id: str) -> AsyncWhabuzz:
        """A client for one tenant of a platform key. It shares the connections of this client and never closes them."""
        return self._with(replace(self._options, tenant_id=tenant_id))

    def with_options(
        self,
        *,
        timeout: httpx.Timeout | float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncWhabuzz:
        """A client with another time-out, other retries or further headers. It shares this client's connections."""
        return self._with(self._options.changed(timeout, max_retries, headers))

    def _with(self, options: Options) -> AsyncWhabuzz:
        other = object.__new__(type(self))
        other._use(options, self._transport.http)
        return other

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
    ) -> httpx.Response:
        """Call any operation and return the whole response. Raises APIError, NoAnswer."""
        return await self._transport.send(raw_call(method, path, query, body, idempotency_key))

    async def close(self) -> None:
        """Close the connections, if this client opened them itself."""
        if self._is_owner:
            await self._transport.http.aclose()

    async def __aenter__(self) -> AsyncWhabuzz:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
