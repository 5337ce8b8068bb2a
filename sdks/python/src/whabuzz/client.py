"""The clients: `Whabuzz` for synchronous code, `AsyncWhabuzz` for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, Iterable, Mapping
from types import TracebackType
from typing import Any, cast

import httpx

from whabuzz import async_resources, resources, types
from whabuzz.async_transport import AsyncTransport
from whabuzz.batches import FINAL, MOST, bodies, bodies_async
from whabuzz.calls import Call, Repeats
from whabuzz.errors import WhabuzzError
from whabuzz.replies import reply_body, reply_key
from whabuzz.transport import Transport

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""Seconds. The service gives the upstream 15 seconds, so a send answers well within it."""
POLL_SECONDS = 2.0


def _settings(api_key: str | None, base_url: str | None, tenant_id: str | None) -> tuple[str, dict[str, str]]:
    api_key = api_key or os.environ.get("WHABUZZ_API_KEY")
    base_url = base_url or os.environ.get("WHABUZZ_BASE_URL")
    if not api_key or not base_url:
        raise WhabuzzError("Give api_key and base_url, or set WHABUZZ_API_KEY and WHABUZZ_BASE_URL.")
    headers = {"Authorization": f"Bearer {api_key}", "User-Agent": "whabuzz-python"}
    if tenant_id:
        headers["X-Service-Tenant"] = tenant_id
    return base_url.rstrip("/"), headers


class Messages(resources.Messages):
    """Single messages, answers and batches."""

    def reply(
        self,
        event: types.MessageInboundEvent,
        content: str | Mapping[str, Any],
        *,
        quote: bool = False,
        name: str = "",
    ) -> types.SentMessage:
        """Answer a customer's message. An event that is delivered twice is answered once.

        Several answers to one event need a `name` each.
        """
        return self.send(reply_body(event, content, quote=quote), idempotency_key=reply_key(event, name))

    def send_batch(
        self, rows: Iterable[Mapping[str, Any]], *, from_: str, client_ref: str, size: int = MOST
    ) -> list[types.Batch]:
        """Send any number of messages, as batches of up to 10,000; rows are messages without `from`."""
        made = bodies(rows, from_=from_, client_ref=client_ref, size=size)
        return [self.create_batch(cast("types.MessageBatch", body)) for body in made]

    def wait_for_batch(self, batch_id: str, *, seconds: float = 600.0) -> types.Batch:
        """The batch once it is completed or cancelled. Raises TimeoutError when that takes longer."""
        deadline = time.monotonic() + seconds
        while (batch := self.get_batch(batch_id))["status"] not in FINAL:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Batch {batch_id} is still {batch['status']}.")
            time.sleep(POLL_SECONDS)
        return batch


class Media(resources.Media):
    """Files for messages and from messages."""

    def describe(self, media_id: str) -> types.MediaDescription:
        """The upstream's description of a file: its type, size and hash."""
        call = Call("GET", self._path("/v1/media/{media_id}", media_id=media_id), query={"meta": True})
        return cast("types.MediaDescription", self._json(call))


class Whabuzz(resources.Resources):
    """The API with one key. Use it in a `with` block, or call `close`."""

    messages: Messages
    media: Media

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        tenant_id: str | None = None,
        timeout: httpx.Timeout | float = TIMEOUT,
        max_retries: int = 4,
        http_client: httpx.Client | None = None,
    ) -> None:
        base_url, headers = _settings(api_key, base_url, tenant_id)
        self._http = http_client or httpx.Client(timeout=timeout)
        self._http.base_url = httpx.URL(base_url)
        transport = Transport(self._http, headers, Repeats(max_retries))
        super().__init__(transport)
        self.messages, self.media = Messages(transport), Media(transport)
        self._key, self._max_retries = api_key, max_retries

    @classmethod
    def from_profile(cls, profile: str = "default") -> Whabuzz:
        """A client with the key of `whabuzz login`, or of the environment variables. Raises WhabuzzError."""
        from whabuzz.cli.profiles import Profiles

        credentials = Profiles().credentials(profile)
        if credentials is None:
            raise WhabuzzError("There is no such profile: run `whabuzz login`.")
        return cls(credentials.api_key, credentials.base_url)

    def for_tenant(self, tenant_id: str) -> Whabuzz:
        """The same with a platform key acting on one tenant, over the same connections."""
        return Whabuzz(
            self._key,
            str(self._http.base_url),
            tenant_id=tenant_id,
            max_retries=self._max_retries,
            http_client=self._http,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Whabuzz:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncMessages(async_resources.AsyncMessages):
    """Single messages, answers and batches."""

    async def reply(
        self,
        event: types.MessageInboundEvent,
        content: str | Mapping[str, Any],
        *,
        quote: bool = False,
        name: str = "",
    ) -> types.SentMessage:
        """Answer a customer's message. An event that is delivered twice is answered once.

        Several answers to one event need a `name` each.
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
    ) -> list[types.Batch]:
        """Send any number of messages, as batches of up to 10,000; rows are messages without `from`."""
        if isinstance(rows, AsyncIterable):
            made = bodies_async(rows, from_=from_, client_ref=client_ref, size=size)
            return [await self.create_batch(cast("types.MessageBatch", body)) async for body in made]
        at_once = bodies(rows, from_=from_, client_ref=client_ref, size=size)
        return [await self.create_batch(cast("types.MessageBatch", body)) for body in at_once]

    async def wait_for_batch(self, batch_id: str, *, seconds: float = 600.0) -> types.Batch:
        """The batch once it is completed or cancelled. Raises TimeoutError when that takes longer."""
        deadline = time.monotonic() + seconds
        while (batch := await self.get_batch(batch_id))["status"] not in FINAL:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Batch {batch_id} is still {batch['status']}.")
            await asyncio.sleep(POLL_SECONDS)
        return batch


class AsyncMedia(async_resources.AsyncMedia):
    """Files for messages and from messages."""

    async def describe(self, media_id: str) -> types.MediaDescription:
        """The upstream's description of a file: its type, size and hash."""
        call = Call("GET", self._path("/v1/media/{media_id}", media_id=media_id), query={"meta": True})
        return cast("types.MediaDescription", await self._json(call))


class AsyncWhabuzz(async_resources.AsyncResources):
    """The API with one key, for asyncio. Use it in an `async with` block, or call `close`."""

    messages: AsyncMessages
    media: AsyncMedia

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        tenant_id: str | None = None,
        timeout: httpx.Timeout | float = TIMEOUT,
        max_retries: int = 4,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        base_url, headers = _settings(api_key, base_url, tenant_id)
        self._http = http_client or httpx.AsyncClient(timeout=timeout)
        self._http.base_url = httpx.URL(base_url)
        transport = AsyncTransport(self._http, headers, Repeats(max_retries))
        super().__init__(transport)
        self.messages, self.media = AsyncMessages(transport), AsyncMedia(transport)
        self._key, self._max_retries = api_key, max_retries

    def for_tenant(self, tenant_id: str) -> AsyncWhabuzz:
        """The same with a platform key acting on one tenant, over the same connections."""
        return AsyncWhabuzz(
            self._key,
            str(self._http.base_url),
            tenant_id=tenant_id,
            max_retries=self._max_retries,
            http_client=self._http,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncWhabuzz:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
