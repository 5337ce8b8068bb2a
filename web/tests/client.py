"""An HTTP client of the listener. It checks each response against the contract."""

import http.client
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.api_contract.contract import assert_in_contract


@dataclass(frozen=True)
class Answer:
    """A response."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def __getitem__(self, name: str) -> str:
        return {key.lower(): value for key, value in self.headers.items()}[name.lower()]

    def get(self, name: str, default: str = "") -> str:
        """A header, or the default."""
        return {key.lower(): value for key, value in self.headers.items()}.get(name.lower(), default)


class FrontClient:
    """Calls the listener, on a new connection for each request."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def ask(self, method: str, path: str, body: bytes | Iterable[bytes] = b"", **headers: str) -> Answer:
        """Send one request. `_` in a header's name stands for `-`. A body that is no bytes object is sent in chunks."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
        assert_in_contract(method, path, answer)
        return answer
