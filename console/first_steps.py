"""The first steps on the home page: what a new business does once, and how far it is, live and in its sandbox.

Whether a step is done live is stored on the tenant (`tenants/checklist.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from console.visit import TEST, Visit
from gateway.roles import Area
from phone_numbers.models import PhoneNumber
from tenants.checklist import Step
from tenants.models import Tenant
from webhooks.endpoints import lifecycle

Tested = Callable[[UUID], bool]
"""Whether a tenant has done a step in its sandbox."""


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One of the four first steps: its button leads to `url_name`.

    `tested` is for a step whose place in the checklist counts the live environment alone.
    """

    step: Step
    title: str
    text: str
    button: str
    url_name: str
    tested: Tested | None = None
    needs_approval: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a business is with a step, for a person who can do it."""

    step: FirstStep
    is_done: bool
    """Done in the environment of the visit."""
    is_tested: bool
    """Done in the sandbox, and not live yet."""
    is_locked: bool
    """Possible only after the account's approval."""


def _can_test(tenant_id: UUID) -> bool:
    """Whether a number of the sandbox is connected; the first is made automatically."""
    numbers = PhoneNumber.objects.for_tenant(tenant_id).filter(environment=TEST)
    return numbers.filter(connection_state=PhoneNumber.State.CONNECTED).exists()


STEPS = [
    FirstStep(
        step="webhook_verified",
        title="Add a webhook endpoint",
        text="Your server's URL. It gets every event, signed. No server? Turn conversations on instead.",
        button="Add an endpoint",
        url_name="console_endpoints",
        tested=lambda tenant_id: lifecycle.has_verified(tenant_id=tenant_id, environment=TEST),
    ),
    FirstStep(
        step="number_connected",
        title="Connect a number",
        text="Through Meta's own sign-up, in a few minutes.",
        button="Connect a number",
        url_name="console_numbers",
        tested=_can_test,
    ),
    FirstStep(
        step="api_key_created",
        title="Create an API key",
        text="Your server identifies itself with it.",
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
]


def steps_of(visit: Visit) -> list[Progress]:
    """The first steps, for a person who can do them: all are changes of the integration."""
    return [_progress(step, visit) for step in STEPS] if visit.may_change(Area.INTEGRATION) else []


def _progress(step: FirstStep, visit: Visit) -> Progress:
    tenant = visit.tenant
    is_live = tenant.checklist[step.step]
    asks = step.tested is not None and not is_live and not tenant.sandbox
    is_tested = asks and step.tested is not None and step.tested(tenant.id)
    waits = tenant.status == Tenant.Status.PENDING_APPROVAL
    return Progress(
        step=step,
        is_done=is_live or (is_tested and visit.environment == TEST),
        is_tested=is_tested,
        is_locked=step.needs_approval and waits and not is_live,
    )
