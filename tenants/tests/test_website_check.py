"""The website check adds flags and never rejects."""

from typing import Any

import pytest

from gateway.outbound import client
from tenants.models import Tenant
from tenants.signup import screening

pytestmark = pytest.mark.django_db
PARKED = (b"Domain is for sale", b"BUY this domain", b"Parked free", b"domain parking", b"SedoParking")


@pytest.mark.parametrize(
    ("status", "error", "body", "codes"),
    [
        (200, None, b"<h1>Shop</h1>", []),
        (301, "http_3xx", b"", []),
        (None, "dns_error", b"", ["website_unreachable"]),
        (None, "egress_proxy_away", b"", []),
        (399, "http_3xx", b"", []),
        (400, "http_4xx", b"", ["website_unreachable"]),
        (500, "http_5xx", b"", ["website_unreachable"]),
        *((200, None, b"<p>%s!</p>" % words, ["website_parked"]) for words in PARKED),
    ],
)
def test_what_the_website_answers_becomes_a_flag(
    monkeypatch: pytest.MonkeyPatch, status: int | None, error: str | None, body: bytes, codes: list[str]
) -> None:
    answer = client.Answer(status=status, error=error, ms=3, body=body, retry_after=None)
    monkeypatch.setattr(client, "get_once", lambda *_, **__: answer)
    other = {"code": "duplicate_tax_id", "level": "high", "text": "Another tenant has it."}
    tenant = Tenant.objects.create(name="Shop", website="https://shop.in", flags=[other])
    for _ in range(2):
        screening.check(tenant.id)
    tenant.refresh_from_db()
    assert [flag["code"] for flag in tenant.flags] == ["duplicate_tax_id", *codes]


def test_a_check_of_a_website_that_was_corrected_meanwhile_flags_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tenant = Tenant.objects.create(name="Shop", website="https://dead.in", flags=[])

    def get_slowly(*_: Any, **__: Any) -> client.Answer:
        Tenant.objects.update(website="https://shop.in")
        return client.Answer(status=None, error="timeout", ms=3, body=b"", retry_after=None)

    monkeypatch.setattr(client, "get_once", get_slowly)
    screening.check(tenant.id)
    tenant.refresh_from_db()
    assert tenant.flags == []


def test_a_tenant_without_a_website_is_left_alone(tenant: Any) -> None:
    screening.check(tenant.id)
    tenant.refresh_from_db()
    assert tenant.flags == []


@pytest.mark.parametrize("is_on", [True, False])
def test_a_website_is_checked_only_where_the_setting_says_so(
    settings: Any, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any, is_on: bool
) -> None:
    settings.WEBSITE_CHECK = is_on
    tenant, enqueued = Tenant.objects.create(name="Shop"), []
    monkeypatch.setattr(screening, "enqueue", lambda task, **arguments: enqueued.append((task, arguments)))
    with django_capture_on_commit_callbacks(execute=True):
        screening.after_commit(tenant)
        assert enqueued == [], "the worker must find the committed row"
    assert enqueued == [("tenants.tasks.check_website", {"tenant_id": str(tenant.id)})] * is_on
