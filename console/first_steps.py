"""The first steps on the home page: the tasks of a new business, and its progress in the live environment and in the
sandbox.

A business with a developer connects its server. A business without a developer reads and replies in the console.

The tenant's row stores the steps that are done in the live environment (`tenants/checklist.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from console.page import LINKED_ENVIRONMENT
from console.send import EXAMPLE_CUSTOMER
from console.visit import LIVE, TEST, Visit, sending_numbers
from gateway.roles import Area
from phone_numbers.models import PhoneNumber
from tenants.checklist import Step
from tenants.models import ApiKey, Tenant
from webhooks.endpoints import lifecycle
from webhooks.models import Endpoint

SHOWN = 3
"""The maximum number of keys, and of endpoints, that the quickstart names."""
DEVELOPER, NONE = "developer", "none"
WAYS = (DEVELOPER, NONE)
WAY = "way"
"""The session key of the chosen way: the steps with or without a developer."""
Tested = Callable[[UUID], bool]
"""Checks whether a tenant has done a step in its sandbox."""


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One of the first steps. Its button leads to `url_name`.

    `tested` checks whether the step is done in the sandbox. It is set for steps whose checklist entry covers only the
    live environment.
    """

    step: Step
    title: str
    text: str
    button: str
    url_name: str
    tested: Tested | None = None
    needs_approval: bool = False
    is_live: bool = False
    """Whether the button leads to the live environment as soon as the live environment is open."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A business's progress with a step, for a member who can do it."""

    step: FirstStep
    is_done: bool
    """Whether the step is done in the environment of the visit."""
    is_tested: bool
    """Whether the step is done in the sandbox but not in the live environment."""
    is_locked: bool
    """Whether the step is possible only after the account's approval."""
    url: str


def _can_test(tenant_id: UUID) -> bool:
    """Whether a number is connected in the sandbox. The sandbox's first number is created automatically."""
    numbers = PhoneNumber.objects.for_environment(tenant_id, TEST)
    return numbers.filter(connection_state=PhoneNumber.State.CONNECTED).exists()


def _receives_tests(tenant_id: UUID) -> bool:
    return lifecycle.has_verified(tenant_id=tenant_id, environment=TEST)


_CONNECT = FirstStep(
    step="number_connected",
    title="Connect a number",
    text="Through Meta's own sign-up, in a few minutes.",
    button="Connect a number",
    url_name="console_numbers",
    tested=_can_test,
    is_live=True,
)
STEPS = {
    DEVELOPER: [
        FirstStep(
            step="webhook_verified",
            title="Add a webhook endpoint",
            text="Your server's URL. It gets every event, signed.",
            button="Add an endpoint",
            url_name="console_endpoints",
            tested=_receives_tests,
        ),
        _CONNECT,
        FirstStep(
            step="api_key_created",
            title="Create an API key",
            text="Your server authenticates with it.",
            button="Create a key",
            url_name="console_api_keys",
            needs_approval=True,
        ),
        FirstStep(
            step="test_message_sent",
            title="Send a message",
            text="From the console or with your API key.",
            button="Send one",
            url_name="console_send",
        ),
    ],
    NONE: [
        FirstStep(
            step="webhook_verified",
            title="Turn on conversations",
            text="What your customers write then arrives here. You answer in this browser or on your phone.",
            button="Open conversations",
            url_name="console_conversations",
            tested=_receives_tests,
        ),
        _CONNECT,
        FirstStep(
            step="test_message_sent",
            title="Send a message",
            text="Answer a customer, or begin with a template that Meta has approved.",
            button="Send one",
            url_name="console_send",
        ),
    ],
}


def way_of(session: Mapping[str, Any]) -> str:
    """The way that the member chose. The default is the way with a developer."""
    way = session.get(WAY)
    return way if way in WAYS else DEVELOPER


def steps_of(visit: Visit, way: str) -> list[Progress]:
    """The first steps with or without a developer (`way`). Empty for members who may not change the integration,
    because all steps change it.
    """
    return [_progress(step, visit) for step in STEPS[way]] if visit.may_change(Area.INTEGRATION) else []


def quickstart(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show a developer's first calls, with the numbers, keys and endpoints of this business."""
    keys = ApiKey.objects.for_environment(**visit.scope).working()
    endpoints = Endpoint.objects.for_environment(**visit.scope).filter(kind=Endpoint.Kind.WEBHOOK)
    return render(
        request,
        "console/quickstart.html",
        {
            "numbers": sending_numbers(visit),
            "keys": keys.order_by("-id")[:SHOWN],
            "endpoints": endpoints.order_by("-id")[:SHOWN],
            "customer": EXAMPLE_CUSTOMER,
        },
    )


def _progress(step: FirstStep, visit: Visit) -> Progress:
    tenant = visit.tenant
    is_live = tenant.checklist[step.step]
    asks = step.tested is not None and not is_live and not tenant.sandbox
    is_tested = asks and step.tested is not None and step.tested(tenant.id)
    waits = tenant.status == Tenant.Status.PENDING_APPROVAL
    query = f"?{LINKED_ENVIRONMENT}={LIVE}" if step.is_live and visit.is_open(LIVE) else ""
    return Progress(
        step=step,
        is_done=is_live or (is_tested and visit.environment == TEST),
        is_tested=is_tested,
        is_locked=step.needs_approval and waits and not is_live,
        url=reverse(step.url_name) + query,
    )
