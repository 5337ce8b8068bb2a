"""A dispatcher that ends as soon as it has no work, and an endpoint to which it delivers."""

from typing import Any

import pytest

from tests.fixtures import Api
from tests.receiver import Receiver
from webhooks.delivery import dispatcher


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "LINGER_SECONDS", 0.0)
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 0.05)
    monkeypatch.setattr("webhooks.delivery.claimer.PAUSE_SECONDS", 0.05)


@pytest.fixture
def endpoint(api: Api, receiver: Receiver) -> dict[str, Any]:
    """A verified endpoint of `tenant` at the receiver, with its secret."""
    answer = api.post("/v1/webhooks", {"url": receiver.url})
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body
