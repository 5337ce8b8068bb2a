"""The first steps on the home page: what a new business does once, and how far it is, live and in its test world.

Each app registers its own steps by its `pages` module; this module only holds the list. Whether a step is done live is
stored on the tenant (`tenants/checklist.py`); the apps say what is done in the test world.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from tenants.checklist import Step
from tenants.console.frame import TEST, Visit, area_of_page
from tenants.models import Tenant

Tested = Callable[[UUID], bool]
"""Whether a tenant has done a step in its test world."""


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
    order: int
    tested: Tested | None = None
    needs_approval: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a business is with a step, for a person who can do it."""

    step: FirstStep
    is_done: bool
    """As the environment that is looked at shows it."""
    is_tested: bool
    """Done in the test world, and not live yet."""
    is_locked: bool
    """It comes with the approval of the account."""


_steps: list[FirstStep] = []


def register(step: FirstStep) -> None:
    """Add an app's step in the place that its `order` says."""
    _steps.append(step)
    _steps.sort(key=lambda each: each.order)


def steps_of(visit: Visit) -> list[Progress]:
    """The first steps that the person's role can do, in their order."""
    return [_progress(step, visit) for step in _steps if visit.may_change(area_of_page(step.url_name))]


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
