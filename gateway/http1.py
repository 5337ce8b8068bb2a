"""HTTP/1.1 for the two busiest flows. Writes each request in one piece, and parses responses with llhttp (httptools).

`gateway.outbound.connection` uses it on event loops, for tenants' receivers and the Graph API. A general client takes
several times as much CPU for a call.
"""

import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import certifi
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from requests.structures import CaseInsensitiveDict

MAX_FIELDS = 128
CHUNK_BYTES = 32
"""Maximum length of one chunk's size line and line breaks together, in bytes."""


class Origin(NamedTuple):
    """The key under which a connection can be reused."""

    host: str
    port: int
    is_tls: bool


@cache
def tls_context() -> ssl.SSLContext:
    """The TLS settings of this process's calls. Cached, because creating them takes tens of milliseconds."""
    return new_tls_context()


def new_tls_context(trusted: str | None = None) -> ssl.SSLContext:
    """TLS settings that accept the system's certificates (SSL_CERT_FILE applies) and certifi's, or only `trusted`.

    `trusted` is PEM text: CAs, or the server's certificate itself. Raises SSLError or ValueError for any other text.
    """
    context = ssl.create_default_context(cadata=trusted)
    # Only the subject alternative names are a certificate's names (RFC 9525, 2). The common name may be any text.
    context.hostname_checks_common_name = False
    if trusted is None:
        context.load_verify_locations(certifi.where())
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    return context


def request_head(
    method: str, path: str, host: str, headers: Mapping[str, str], *, body_bytes: int | None
) -> bytes:
    """A request without its body. Raises ValueError for a header with a line break."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if fields.count("\n") != len(headers) or fields.count("\r") != len(headers) or "\0" in fields:
        raise ValueError("A header has a line break or a NUL in it.")
    length = "" if body_bytes is None else f"Content-Length: {body_bytes}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n{fields}{length}\r\n".encode()


def headers_of(fields: Sequence[tuple[bytes, bytes]]) -> CaseInsensitiveDict[str]:
    """Header fields by name. Of repeated fields, the first is used."""
    return CaseInsensitiveDict(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in reversed(fields)
    )


class AnswerTooLargeError(Exception):
    """A status line, headers, chunk extensions or trailers exceed the limits."""


class BrokenOffError(Exception):
    """Before the response was complete, the connection ended or sent something that is not HTTP."""


class AnswerReader:
    """Reads the responses of one connection, one at a time.

    Call `expect` to begin a response and `feed` for received bytes. `status`, `fields` and `body` are the result so
    far. `is_complete` means that the body was read to its end. `can_keep` means that the connection may serve another
    request. All bytes except the body count against one limit.
    """

    def __init__(self, *, most_head_bytes: int) -> None:
        self._most_head_bytes = most_head_bytes
        self._parser = HttpResponseParser(self)
        # Servers vary widely, so the parser accepts what other clients accept.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def expect(self, *, most_body_bytes: int) -> None:
        """Reset for the next response. At most `most_body_bytes` of its body are stored."""
        self.status: int | None = None
        self.fields: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.has_begun = self.is_complete = self.can_keep = False
        self._room = most_body_bytes
        self._is_framed = False
        self._is_chunk_open = self._has_trailer = False
        self._other_bytes = self._field_bytes = 0

    @property
    def is_enough(self) -> bool:
        """Whether the response is complete, or its body has reached the limit."""
        return self.is_complete or self._room <= 0

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection ends the response, because the body has neither a length nor chunks."""
        return self.status is not None and not self._is_framed

    def headers(self) -> CaseInsensitiveDict[str]:
        """The header fields of the response by name."""
        return headers_of(self.fields)

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises `BrokenOffError` and `AnswerTooLargeError`."""
        self.has_begun = True
        self._other_bytes += len(data)
        was_chunk_open = self._is_chunk_open
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.is_complete, self.can_keep = True, False
        except HttpParserError as error:
            self.can_keep = False
            if isinstance(error.__context__, AnswerTooLargeError):
                raise AnswerTooLargeError from None
            if not self.is_complete:
                raise BrokenOffError from error
        # The parser does not report the size of a chunk. The last chunk is the one that no data follows.
        if self._is_chunk_open and (was_chunk_open or self._has_trailer or not data.endswith(b"\n")):
            # The trailers are not needed, and a receiver may send them endlessly. So the connection is not reused.
            self.is_complete = True
        if not self.is_enough and self._other_bytes > self._most_head_bytes:
            raise AnswerTooLargeError

    # --- Callbacks of the parser

    def on_message_begin(self) -> None:
        """A response begins, possibly an interim one."""
        if self.is_complete:
            raise BrokenOffError  # a second response to one request

    def on_status(self, reason: bytes) -> None:
        """The reason phrase or a part of it."""
        self._count(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field. Fields that determine the end of the body are evaluated. A trailer is dropped."""
        if self.status is not None:
            self._has_trailer = True
            return
        self._count(len(name) + len(value))
        self.fields.append((name, value))
        match name.lower():
            case b"content-length":
                self._is_framed = True
            case b"transfer-encoding":
                self._is_framed = b"chunked" in value.lower()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        status = self._parser.get_status_code()
        if status == 101 or not 100 <= status < 200:
            self.status = status

    def on_chunk_header(self) -> None:
        """A chunk begins. Every chunk but the last is followed by data."""
        if self.status is not None:
            self._is_chunk_open = True
            self._other_bytes -= CHUNK_BYTES

    def on_body(self, data: bytes) -> None:
        """A part of the body. An interim response has no body (RFC 9110, 15.2), so its bytes are dropped."""
        if self.status is None:
            return
        self._is_chunk_open = False
        self._other_bytes -= len(data)
        if self._room > 0:
            self.body += data[: self._room]
            self._room -= len(data)

    def on_message_complete(self) -> None:
        """A response is complete. An interim response is followed by the next response."""
        self._is_chunk_open = False
        if self.status is not None:
            self.is_complete = True
            self.can_keep = self._parser.should_keep_alive()
        else:
            self._other_bytes = self._field_bytes = 0
            self._is_framed = False
            self.fields.clear()

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > self._most_head_bytes or len(self.fields) >= MAX_FIELDS:
            raise AnswerTooLargeError
