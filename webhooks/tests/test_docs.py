"""docs/webhooks.md: its Python sample receives real requests, and it names every error, state and metric."""

from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from gateway import metrics
from tenants.models import Tenant
from tests.receiver import Receiver
from webhooks import dispatch
from webhooks.models import Delivery, Endpoint
from webhooks.replay import STATUSES
from webhooks.tests.delivering import publish_one

TEXT = (Path(__file__).resolve().parents[2] / "docs/webhooks.md").read_text()
ERRORS = [
    "http_3xx",
    "http_4xx",
    "http_5xx",
    "timeout",
    "dns_error",
    "connection_error",
    "tls_error",
    "blocked_address",
    "response_too_large",
    "payload_expired",
    "endpoint_deleted",
]


@pytest.mark.django_db(transaction=True)
def test_the_sample_takes_pings_and_events_and_nothing_else(
    tenant: Tenant, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    sample: dict[str, Any] = {}
    exec(TEXT.split("```python\n")[1].split("```")[0], sample)  # noqa: S102 - the documentation's own code
    publish_one(tenant)
    dispatch.run()
    (got,), (ping,) = receiver.wait_for(1), receiver.pings
    assert sample["receive"](endpoint["secret"], got.headers, got.body) == "ok"
    assert sample["receive"](endpoint["secret"], ping.headers, ping.body) == ping.json["challenge"]
    with pytest.raises(WebhookVerificationError):
        sample["receive"](endpoint["secret"], got.headers, got.body + b" ")


def test_every_word_is_explained() -> None:
    words = [*ERRORS, *Endpoint.Status.values, *Delivery.Status.values, *STATUSES]
    words += [name for name in metrics.names() if name.startswith("gateway_deliver")]
    assert [word for word in words if f"`{word}" not in TEXT and f'"{word}"' not in TEXT] == []
