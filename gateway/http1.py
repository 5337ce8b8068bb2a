"""HTTP/1.1 of the two busiest flows: a request in one piece, and the answer to it, parsed by llhttp (httptools).

`gateway.outbound.connection` speaks it on event loops, to customers' receivers and to the Graph API: a general client
takes several times the CPU of a call.
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
"""Most bytes of the size line and the line breaks of one chunk."""


class Origin(NamedTuple):
    """What a connection can be used again for."""

    host: str
    port: int
    is_tls: bool


@cache
def tls_context() -> ssl.SSLContext:
    """The TLS settings of this process's calls: making them takes tens of milliseconds."""
    return new_tls_context()


def new_tls_context(trusted: str | None = None) -> ssl.SSLContext:
    """Verification against the system's certificates (SSL_CERT_FILE counts) and certifi's; or against `trusted` alone.

    That is PEM: CAs, or the certificate itself. Raises SSLError and ValueError when it is not.
    """
    context = ssl.create_default_context(cadata=trusted)
    # A certificate's names are its subject alternative names (RFC 9525, 2): the common name may be any text.
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
    """A request up to its body. Raises ValueError for a header that would end before its line does."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if fields.count("\n") != len(headers) or fields.count("\r") != len(headers) or "\0" in fields:
        raise ValueError("A header has a line break or a NUL in it.")
    length = "" if body_bytes is None else f"Content-Length: {body_bytes}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n{fields}{length}\r\n".encode()


def headers_of(fields: Sequence[tuple[bytes, bytes]]) -> CaseInsensitiveDict[str]:
    """Header fields by their names; of equal ones the first counts."""
    return CaseInsensitiveDict(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in reversed(fields)
    )


class AnswerTooLargeError(Exception):
    """A status line, headers, chunk extensions or trailers beyond the bounds."""


class BrokenOffError(Exception):
    """The connection ended, or something else than HTTP came, before the answer was complete."""


class AnswerReader:
    """The answers that come over one connection, one at a time.

    `expect` begins one; `feed` takes what comes; then `status`, `fields` and `body` are what has come of it.
    `is_complete` when its body was read to the end, `can_keep` when the connection may then serve another request.
    Every byte that is not body counts against one bound, whatever part of the answer it belongs to.
    """

    def __init__(self, *, most_head_bytes: int) -> None:
        self._most_head_bytes = most_head_bytes
        self._parser = HttpResponseParser(self)
        # Servers are of every make: what other clients forgive is forgiven.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def expect(self, *, most_body_bytes: int) -> None:
        """Reset to the next answer; of its body no more than this is stored."""
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
        """Whether nothing more is wanted: the answer is complete, or its body has reached the limit."""
        return self.is_complete or self._room <= 0

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the answer's: its body announced neither a length nor chunks."""
        return self.status is not None and not self._is_framed

    def headers(self) -> CaseInsensitiveDict[str]:
        """What `fields` are by their names."""
        return headers_of(self.fields)

    def feed(self, data: bytes) -> None:
        """Read some bytes. Raises `BrokenOffError` and `AnswerTooLargeError`."""
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
        # The parser does not tell the size of a chunk. One that other bytes than its data follow was the last one.
        if self._is_chunk_open and (was_chunk_open or self._has_trailer or not data.endswith(b"\n")):
            # Nobody needs the trailers, and a receiver may send them without end: the connection is not kept.
            self.is_complete = True
        if not self.is_enough and self._other_bytes > self._most_head_bytes:
            raise AnswerTooLargeError

    # --- Callbacks of the parser

    def on_message_begin(self) -> None:
        """An answer begins, an interim one or the answer."""
        if self.is_complete:
            raise BrokenOffError  # another one that nobody asked for

    def on_status(self, reason: bytes) -> None:
        """The words behind the status, or a part of them."""
        self._count(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field. Those that mark the end of the body matter here; a trailer is dropped."""
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
        """The head has ended."""
        status = self._parser.get_status_code()
        if status == 101 or not 100 <= status < 200:
            self.status = status

    def on_chunk_header(self) -> None:
        """A chunk's size has come; the last chunk has none of the data that follows others."""
        if self.status is not None:
            self._is_chunk_open = True
            self._other_bytes -= CHUNK_BYTES

    def on_body(self, data: bytes) -> None:
        """A part of the body. An interim answer has none (RFC 9110, 15.2): what it sends as one is dropped."""
        if self.status is None:
            return
        self._is_chunk_open = False
        self._other_bytes -= len(data)
        if self._room > 0:
            self.body += data[: self._room]
            self._room -= len(data)

    def on_message_complete(self) -> None:
        """An answer has ended; after an interim one the next is awaited."""
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
        if self._field_bytes > self._most_head_bytes or len(self.fields) > MAX_FIELDS:
            raise AnswerTooLargeError
