"""Hand-over to Django: every path that the listener does not answer itself runs in a bounded pool of threads.

A thread starts when a body of up to 64 KiB has arrived. The view reads a longer body as it arrives, after admitting the
caller. A longer response occupies its thread until the client has read it. Both waits are limited in time and in the
number of threads, so that slow clients leave threads for all others.

The pages of one business take turns, so that its members, however many pages they request, leave threads for all
others. An ordinary page waits for its turn for a moment at most, and is not refused.
"""

import asyncio
import contextlib
import io
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote_to_bytes

import structlog
from django.core.handlers.wsgi import WSGIHandler

from gateway.api.access_log import Answering, waiting_for_client
from gateway.api.errors import RateLimited, ServiceError, ServiceUnavailable, as_service_error, error_reply
from gateway.api.limits import CHUNKED, MOST_CHUNKED_BYTES, SMALL_BODY_BYTES, ChunkedBody
from gateway.database import pool
from web.request import AsgiScope, ClientGone, Receive, Request, Send, end_answer, send_head, send_whole
from web.strangers import REJECTIONS, is_known, owner_of_session, strangers
from web.turns import Turns

log = structlog.get_logger(__name__)

THREADS = 40
"""Threads of a process for callers. A call that waits for Meta occupies a thread, but no database connection."""
STRANGERS_THREADS = 8
MOST_WAITING = 1_000
"""The maximum number of requests that wait for a thread."""
PAGES_AT_ONCE = THREADS * 3 // 4
"""The maximum number of threads that serve requests with sessions of one business. More than the bulkheads of the Graph
API and of endpoints allow a tenant, so that pictures and sends that wait leave turns for other pages.
"""
MOST_WAITING_PAGES = 200
"""The maximum number of requests with sessions of one business that wait for their turn."""
THREADS_FOR_SLOW_CLIENTS = THREADS * 3 // 4
"""The maximum number of threads that wait for clients: for a body to arrive, or for a response to be read."""
WHOLE_ANSWER_BYTES = 1024 * 1024
"""The largest streamed response that releases its thread at once, in bytes."""
SLOWEST_TAKEN_BYTES_PER_SECOND = 16 * 1024
TAKE_GRACE_SECONDS = 30.0
"""How long a client may take to read a longer response, in addition to the time for its size at the slowest rate."""

Headers = list[tuple[str, str]]


class DjangoThreads:
    """Django's WSGI application in the threads of this process."""

    def __init__(self) -> None:
        from gateway.wsgi import application

        self._application: WSGIHandler = application
        self._callers = ThreadPoolExecutor(THREADS, thread_name_prefix="django")
        self._strangers = ThreadPoolExecutor(
            STRANGERS_THREADS, thread_name_prefix="strangers", initializer=pool.use_strangers_pool
        )
        self._free = THREADS + MOST_WAITING
        self._pages = Turns(PAGES_AT_ONCE)
        self._slow_clients = threading.BoundedSemaphore(THREADS_FOR_SLOW_CLIENTS)

    def close(self) -> None:
        """End the threads after their requests are answered."""
        self._callers.shutdown(wait=False)
        self._strangers.shutdown(wait=False)

    async def answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request with Django."""
        request = Request(scope, receive)
        try:
            begun = await _beginning(request)
            if is_known(scope):
                async with self._turn_of_page(scope):
                    exchange = await self._exchange_of_caller(request, begun, send)
            else:
                async with strangers.turn(request):
                    exchange = await self._exchange(request, begun, send, self._strangers)
                    if exchange.refusal is not None or exchange.status in REJECTIONS:
                        await strangers.after_rejection()
        except (ClientGone, _CutOff):
            return
        except Exception as error:  # noqa: BLE001 - every exception becomes an answer
            await _refuse(error, send, request)
            return
        if exchange.refusal is not None:
            await _refuse(exchange.refusal, send, request)
        elif exchange.whole is not None:
            await send_whole(exchange.status, exchange.headers, exchange.whole, request, send)
        elif exchange.is_complete:
            await end_answer(request, send)

    @contextlib.asynccontextmanager
    async def _turn_of_page(self, scope: AsgiScope) -> AsyncIterator[None]:
        """Hold a turn of the business during the block, for a request with a known session. Raises RateLimited if too
        many requests of the business wait.
        """
        owner = owner_of_session(scope)
        if owner is None:
            yield
            return
        if self._pages.users(owner) >= PAGES_AT_ONCE + MOST_WAITING_PAGES:
            raise RateLimited(
                "Too many pages of your business are waiting. Try again.", headers={"Retry-After": "1"}
            )
        async with self._pages.held(owner):
            yield

    async def _exchange_of_caller(self, request: Request, begun: bytes, send: Send) -> "_Exchange":
        if self._free <= 0:
            raise ServiceUnavailable("Too many requests are waiting for this process. Try again.")
        self._free -= 1
        try:
            return await self._exchange(request, begun, send, self._callers)
        finally:
            self._free += 1

    async def _exchange(
        self, request: Request, begun: bytes, send: Send, executor: ThreadPoolExecutor
    ) -> "_Exchange":
        loop = asyncio.get_running_loop()
        exchange = _Exchange(request, begun, send, loop, self._slow_clients)
        try:
            await asyncio.shield(loop.run_in_executor(executor, exchange.run, self._application))
        except Exception as error:
            if exchange.has_begun:
                log.warning("answer_cut_off", reason=type(error).__name__)
                raise _CutOff from None
            raise
        return exchange


class _CutOff(Exception):
    """A response was interrupted. The server then closes the connection."""


async def _beginning(request: Request) -> bytes:
    """A small body, or the first part of a chunked body. Empty for a long body, whose caller is admitted first.

    Raises RequestTimeout or ClientGone.
    """
    parts: list[bytes] = []
    size = 0
    if request.is_chunked or (request.declared_length or 0) <= SMALL_BODY_BYTES:
        while not request.body_is_read and size <= SMALL_BODY_BYTES:
            parts.append(await request.part())
            size += len(parts[-1])
    return b"".join(parts)


async def _refuse(error: Exception, send: Send, request: Request) -> None:
    """Answer a request that did not reach Django."""
    answering = Answering(request.method, request.path)
    reply = error_reply(as_service_error(error), answering.request_id)
    headers = answering.finish(status=reply.status, route=None, body=reply.body)
    await send_whole(reply.status, [*headers.items(), *reply.headers.items()], reply.body, request, send)


class _Exchange:
    """A request in its thread, and its response. A response that is ready at once is `whole`. Others are sent in
    pieces. A streamed response that is incomplete at its end is cut off. Its client is gone or too slow.
    """

    def __init__(
        self,
        request: Request,
        begun: bytes,
        send: Send,
        loop: asyncio.AbstractEventLoop,
        slow_clients: threading.BoundedSemaphore,
    ) -> None:
        self._request, self._begun, self._send = request, begun, send
        self._loop, self._slow_clients = loop, slow_clients
        self.status = 500
        self.headers: Headers = []
        self.whole: bytes | None = None
        self.has_begun = False
        """Whether the response's head was sent. A later failure can no longer be answered."""
        self.refusal: ServiceError | None = None
        self.is_complete = False

    def run(self, application: WSGIHandler) -> None:
        """Answer the request with Django, and close Django's database connection. Called in a thread."""
        response: Any = application(
            self._environ(), self._start_response
        )  # the HttpResponseBase that Django returns
        try:
            if not response.streaming:
                self.whole = response.content
            elif self._length() <= WHOLE_ANSWER_BYTES:
                self.whole = b"".join(response)
            else:
                self._stream(response)
        finally:
            response.close()

    def _start_response(self, status: str, headers: Headers, _: Any = None, /) -> Callable[[bytes], object]:
        self.status, self.headers = int(status[:3]), headers
        return self._reject_write

    @staticmethod
    def _reject_write(_: bytes) -> None:
        """PEP 3333's other way to respond, which Django does not use."""
        raise NotImplementedError

    def _length(self) -> float:
        lengths = [int(value) for name, value in self.headers if name.lower() == "content-length"]
        return lengths[0] if lengths else float("inf")

    def _stream(self, response: Iterable[bytes]) -> None:
        """Send a response while Django produces it, as fast as its client reads."""
        if not self._slow_clients.acquire(blocking=False):
            self.refusal = ServiceUnavailable("Too many clients read their answers slowly. Try again.")
            return
        gone = asyncio.run_coroutine_threadsafe(self._request.disconnected(), self._loop)
        try:
            self.has_begun = True
            self._await(send_head(self.status, self.headers, self._request, self._send))
            sent, began = 0, self._loop.time()
            for piece in response:
                if gone.done():
                    return
                ends = began + TAKE_GRACE_SECONDS + sent / SLOWEST_TAKEN_BYTES_PER_SECOND
                if not self._await(self._send_piece(piece, ends)):
                    return
                sent += len(piece)
            self.is_complete = True
        finally:
            gone.cancel()
            self._slow_clients.release()

    async def _send_piece(self, piece: bytes, ends: float) -> bool:
        """Send a part of a response once the client has read the previous parts. False if that takes too long."""
        try:
            async with asyncio.timeout_at(ends):
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            return False
        return True

    def _await(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def read_more(self) -> bytes:
        """The next part of a long body. The view's thread calls this. Raises ServiceError or OSError."""
        if not self._slow_clients.acquire(blocking=False):
            raise ServiceUnavailable("Too many large requests are arriving at once. Try again.")
        try:
            with waiting_for_client():
                part: bytes = self._await(self._request.part())
        except ClientGone:
            raise OSError("The client is gone.") from None
        finally:
            self._slow_clients.release()
        return part

    def _environ(self) -> dict[str, Any]:
        """The request in the form of WSGI (PEP 3333)."""
        request, scope = self._request, self._request.scope
        server, client = scope["server"] or ("", 0), scope["client"] or ("", 0)
        body: io.IOBase = io.BytesIO(self._begun) if request.body_is_read else _LongBody(self)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
            "QUERY_STRING": request.query_string.decode("latin-1"),
            "SERVER_NAME": server[0],
            "SERVER_PORT": str(server[1]),
            "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
            "REMOTE_ADDR": client[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": scope["scheme"],
            "wsgi.input": body,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
        }
        for name, value in request.headers.items():
            # A name with an underscore could be taken for another header (`X_Forwarded_For`).
            if b"_" not in name:
                environ["HTTP_" + name.decode("latin-1").replace("-", "_").upper()] = value.decode("latin-1")
        environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE", "")
        declared = environ.pop("HTTP_CONTENT_LENGTH", "")
        if request.is_chunked and request.body_is_read:
            declared = str(len(self._begun))
        elif request.is_chunked:
            environ["wsgi.input"] = environ[CHUNKED] = ChunkedBody(body)
            declared = str(MOST_CHUNKED_BYTES)
        environ["CONTENT_LENGTH"] = declared
        return environ


class _LongBody(io.RawIOBase):
    """A body of which some bytes have not arrived yet."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange
        self._at_hand = memoryview(exchange._begun)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes of those that have arrived. Empty at the end of the body."""
        if size == 0:
            return b""
        parts: list[bytes] = []
        wanted = size
        while wanted:
            if not self._at_hand:
                if self._exchange._request.body_is_read:
                    break
                self._at_hand = memoryview(self._exchange.read_more())
                continue
            part = bytes(self._at_hand[:wanted] if wanted > 0 else self._at_hand)
            self._at_hand = self._at_hand[len(part) :]
            parts.append(part)
            if wanted > 0:
                wanted -= len(part)
        return b"".join(parts)
