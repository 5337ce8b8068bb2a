"""The two doors to one flow: Django's and the edge's, asked alike."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.test import Client

from tests.api_contract.contract import assert_in_contract


@dataclass(frozen=True)
class Answer:
    """What a door answered."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def __getitem__(self, name: str) -> str:
        return {key.lower(): value for key, value in self.headers.items()}[name.lower()]

    def get(self, name: str, default: str = "") -> str:
        """A header, or the default."""
        return {key.lower(): value for key, value in self.headers.items()}.get(name.lower(), default)


class DjangoDoor:
    """The WSGI application, asked by Django's client."""

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """One request; header names with `_` for `-`."""
        response: Any = Client(raise_request_exception=False).generic(
            method, path, body, content_type="application/json", headers=_dashed(headers)
        )
        assert_in_contract(method, path, response)
        return Answer(response.status_code, dict(response.items()), response.content)


class EdgeDoor:
    """The edge, over a connection of its own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """One request; header names with `_` for `-`."""
        connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            sent = {"Content-Type": "application/json", **_dashed(headers)}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
        assert_in_contract(method, path, answer)
        return answer


Door = DjangoDoor | EdgeDoor


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
