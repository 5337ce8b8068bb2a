"""Warnings of numbers and endpoints on the home page."""

from dataclasses import dataclass
from typing import Literal

from django.db.models import Count, Max
from django.urls import reverse

from phone_numbers.connection.explanations import explained
from phone_numbers.connection.state import token_end
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.tokens import ends_soon
from tenants.models import Tenant
from webhooks.models import Endpoint

MOST_WARNINGS = 5


@dataclass(frozen=True, slots=True)
class HomeWarning:
    """A warning: a sentence, and the page on which its cause can be fixed. `url` is empty where that page is closed."""

    text: str
    button: str
    url: str
    level: Literal["bad", "warn"] = "warn"


def of_endpoints(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """Warn of endpoints that fail or were disabled. A tenant has at most 20 endpoints in an environment."""
    found = []
    for endpoint in Endpoint.objects.for_environment(tenant.id, environment).order_by("-id"):
        page = reverse("console_endpoint", args=[endpoint.id])
        if endpoint.status == Endpoint.Status.DISABLED:
            text = f"{endpoint.url} was disabled: it gets no events."
            found.append(HomeWarning(text, "Repair it", page, "bad"))
        elif endpoint.status == Endpoint.Status.ACTIVE and endpoint.circuit_open_until is not None:
            text = f"{endpoint.url} is failing. Its deliveries wait and are retried."
            found.append(HomeWarning(text, "See why", page, "bad"))
    return found


def of_numbers(tenant: Tenant, environment: str) -> list[HomeWarning]:
    """Warn of disconnected numbers, and of tokens that expire soon."""
    numbers = PhoneNumber.objects.for_environment(tenant.id, environment).filter(
        connection_state=PhoneNumber.State.DISCONNECTED
    )
    alike = numbers.values("connection_detail").annotate(
        count=Count("id"), phone_number_id=Max("phone_number_id"), shown=Max("display_phone_number")
    )
    found = [_cannot_send(**each) for each in alike.order_by("connection_detail")]
    accounts = BusinessAccount.objects.for_tenant(tenant.id).filter(ends_soon(), environment=environment)
    for account in accounts.defer("access_token").order_by("-id")[:MOST_WARNINGS]:
        ends = f"ends on {token_end(account):%d %B} (UTC)"
        text = f"The token of account {account.waba_id} {ends}. Connect the account again before that day."
        found.append(HomeWarning(text, "See the numbers", reverse("console_numbers")))
    return found


def _cannot_send(
    *, connection_detail: str | None, count: int, phone_number_id: str, shown: str
) -> HomeWarning:
    """One warning for all numbers with the same cause. For example, an invalid token disconnects all numbers of an
    account.
    """
    reason = explained(connection_detail).reason
    if count > 1:
        text = f"{count} numbers cannot send, for the same reason. {reason}"
        return HomeWarning(text, "See the numbers", reverse("console_numbers"), "bad")
    page = reverse("console_number", args=[phone_number_id])
    return HomeWarning(f"{shown or phone_number_id} cannot send. {reason}", "See the number", page, "bad")
