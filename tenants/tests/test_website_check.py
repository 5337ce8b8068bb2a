"""The website check adds flags and never rejects."""

from typing import Any

import pytest

from gateway.outbound import client
from tenants.models import Tenant
from tenants.signup import screening

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("status", "error", "body", "codes"),
    [
        (200, None, b"<h1>Shop</h1>", []),
        (301, "http_3xx", b"", []),
        (None, "dns_error", b"", ["website_unreachable"]),
        (500, "http_5xx", b"", ["website_unreachable"]),
        (200, None, b"<title>This Domain is for SALE</title>", ["website_parked"]),
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


def test_a_tenant_without_a_website_is_left_alone(tenant: Any) -> None:
    screening.check(tenant.id)
    tenant.refresh_from_db()
    assert tenant.flags == []
