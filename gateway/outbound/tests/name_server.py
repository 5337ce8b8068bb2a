"""A DNS server on loopback that knows one address, and does not answer queries for certain names."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HEADER_BYTES = 12
_TYPE_A = 1
_NO_SUCH_NAME = 3


@contextmanager
def name_server(*, address: str = "127.0.0.1") -> Iterator[str]:
    """Answer `good*.test` with `address`, leave `slow*` unanswered, reject all other names. Yields `host:port`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=_serve, args=(server, socket.inet_aton(address)))
        thread.start()
        host, port = server.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.sendto(b"", (host, port))
            thread.join(10)


def _serve(server: socket.socket, address: bytes) -> None:
    while True:
        query, client = server.recvfrom(1024)
        if not query:
            return
        end = query.index(b"\0", _HEADER_BYTES) + 5
        name, kind = query[_HEADER_BYTES + 1 :], query[end - 3]
        if name.startswith(b"slow"):
            continue
        is_known = name.startswith(b"good")
        records = (
            b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + address
            if is_known and kind == _TYPE_A
            else b""
        )
        flags = bytes([0x81, 0x80 if is_known else 0x80 | _NO_SUCH_NAME])
        counts = b"\0\1" + (b"\0\1" if records else b"\0\0") + b"\0\0\0\0"
        server.sendto(query[:2] + flags + counts + query[_HEADER_BYTES:end] + records, client)
