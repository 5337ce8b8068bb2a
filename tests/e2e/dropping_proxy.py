"""A proxy that drops responses. The request reaches the service, and the caller's connection ends without a
response.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

HOP_BY_HOP = {
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "content-encoding",
    "accept-encoding",
}


class DroppingProxy(ThreadingHTTPServer):
    """Forwards requests to the service. `drops` has the numbers of the POSTs, from 1, whose responses it drops."""

    daemon_threads = True

    def __init__(self, service: str, drops: set[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.service, self.drops = service, drops
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._posts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def drops_this(self) -> bool:
        with self._lock:
            self._posts += 1
            return self._posts in self.drops


class _Forward(BaseHTTPRequestHandler):
    server: DroppingProxy

    def do_POST(self) -> None:
        self._forward(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def do_GET(self) -> None:
        self._forward(None)

    def _forward(self, body: bytes | None) -> None:
        self.server.requests.append((self.command, self.path))
        sent = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        answer = requests.request(
            self.command, self.server.service + self.path, data=body, headers=sent, timeout=30
        )
        if body is not None and self.server.drops_this():
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def dropping_proxy(service: str, *, drops: set[int]) -> Iterator[DroppingProxy]:
    proxy = DroppingProxy(service, drops)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    yield proxy
    proxy.shutdown()
    proxy.server_close()
    thread.join(10)
