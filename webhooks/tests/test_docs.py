"""docs/webhooks.md names every error and state, and docs/operations.md names every metric. The samples run in
tests/documentation.
"""

from gateway.monitoring import metrics
from tests.pages import page
from webhooks.models import Delivery, Endpoint
from webhooks.replay import STATUSES

TEXT = page("docs/webhooks.md")
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


def test_every_word_is_explained() -> None:
    words = [*ERRORS, *Endpoint.Status.values, *Delivery.Status.values, *STATUSES]
    assert [word for word in words if f"`{word}" not in TEXT and f'"{word}"' not in TEXT] == []


def test_every_metric_is_explained() -> None:
    names = [name for name in metrics.names() if name.startswith("gateway_deliver")]
    assert [name for name in names if f"`{name}" not in page("docs/operations.md")] == []
