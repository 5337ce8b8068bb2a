"""Answers of Razorpay that its simulator never gives, and what billing makes of each."""

from typing import Any

import pytest
import requests
import responses

from billing.models import ProviderTrouble
from billing.payments.provider import ProviderRefused, ProviderRefusesService, ProviderUnreachable
from billing.payments.razorpay import Razorpay
from gateway.api.errors import ServiceError

pytestmark = pytest.mark.django_db

ORDERS = "https://razorpay.example/v1/orders"
BLOCKED = {"error": {"code": "BAD_REQUEST_ERROR", "description": "Your account is blocked"}}
NO_AMOUNT = {"error": {"code": "BAD_REQUEST_ERROR", "description": "The amount is too low", "reason": "low"}}


@pytest.fixture(autouse=True)
def _elsewhere(settings: Any) -> None:
    settings.RAZORPAY_BASE_URL = "https://razorpay.example/v1"


@pytest.mark.parametrize(
    ("answer", "error", "is_trouble"),
    [
        ({"status": 500, "json": NO_AMOUNT}, ProviderUnreachable, False),
        ({"status": 429, "json": NO_AMOUNT}, ProviderUnreachable, False),
        ({"status": 200, "body": "<html>"}, ProviderUnreachable, False),
        ({"body": requests.ConnectTimeout()}, ProviderUnreachable, False),
        ({"status": 302, "headers": {"Location": ORDERS}, "json": {}}, ProviderRefused, False),
        ({"status": 200, "json": []}, ProviderRefused, False),
        ({"status": 400, "json": NO_AMOUNT}, ProviderRefused, False),
        ({"status": 401, "json": {}}, ProviderRefusesService, True),
        ({"status": 403, "json": {}}, ProviderRefusesService, True),
        ({"status": 400, "json": BLOCKED}, ProviderRefusesService, True),
    ],
)
@responses.activate
def test_an_answer_is_a_refusal_only_when_it_says_so(
    answer: dict[str, Any], error: type[ServiceError], is_trouble: bool
) -> None:
    asked = responses.post(ORDERS, **answer)
    with pytest.raises(error) as raised:
        Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1")
    assert type(raised.value) is error
    assert asked.call_count == 1, "and nothing is asked twice"
    assert ProviderTrouble.objects.exists() is is_trouble


@responses.activate
def test_trouble_is_over_with_the_next_answer() -> None:
    responses.post(ORDERS, status=401, json={})
    responses.post(ORDERS, json={"id": "order_1"})
    with pytest.raises(ProviderRefusesService):
        Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1")
    assert Razorpay().create_order(receipt="r", amount_paise=1, invoice_number="1") == "order_1"
    assert not ProviderTrouble.objects.exists()
