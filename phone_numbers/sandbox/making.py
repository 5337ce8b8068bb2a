"""Makes a tenant's test world: an account of the simulator with a ready number, connected like any other account.

Safe to repeat and to race: its ids follow from the tenant's. It is made after the confirmation of a sign-up by a task;
a periodic task repeats what failed, and the first use makes what is still missing (decision "Sandbox").
"""

import random
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from gateway import ids
from gateway.api.errors import ServiceError
from gateway.clock import now
from gateway.database.outage import concerns_all
from gateway.task_queue import enqueue
from gateway.upstream import sandbox
from phone_numbers import graph_calls, onboarding
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.sandbox_identity import first_number_of, waba_id_of
from tenants.actors import Actor
from tenants.models import Tenant

log = structlog.get_logger(__name__)

ENVIRONMENT = "test"
SOUGHT = timedelta(days=7)
"""For how long after its confirmation a tenant's missing test world is sought; later its first use makes it."""
FAILURES = (*graph_calls.FAILURES, ServiceError)
"""What the making may raise: the simulator is away, or answers with an error."""
MOST_AT_ONCE = 50
MOST_FAILURES = 3
"""A round ends after this many failures: the simulator is away, and each attempt can take the upstream's time-out."""


def is_made(tenant_id: UUID) -> bool:
    """Whether the world exists as far as the service knows: its account is subscribed and has a number."""
    accounts = BusinessAccount.objects.for_tenant(tenant_id).filter(waba_id=waba_id_of(tenant_id))
    return accounts.filter(subscribed=True, numbers__isnull=False).exists()


def make(tenant_id: UUID) -> None:
    """Make the world, or what is missing of it, also at a simulator that has lost it. Raises `FAILURES`."""
    account = BusinessAccount.objects.for_tenant(tenant_id).filter(waba_id=waba_id_of(tenant_id)).first()
    numbers = list(PhoneNumber.objects.filter(account=account).order_by("id")) if account else []
    known = [
        {"phone_number_id": number.phone_number_id, "display_phone_number": number.display_phone_number}
        for number in numbers
    ]
    made = sandbox.accepted(
        sandbox.control(
            "POST",
            "accounts",
            json={
                "waba_id": waba_id_of(tenant_id),
                "name": "Sandbox",
                "numbers": known or [{"phone_number_id": first_number_of(tenant_id)}],
                # A simulator that lost its state takes the stored token back.
                "access_token": account.access_token if account else None,
            },
        )
    )
    connect(tenant_id, str(made["access_token"]))


def connect(tenant_id: UUID, token: str) -> None:
    """Connect the world's account with all its numbers. Raises as `onboarding.connect` does."""
    waba_id = waba_id_of(tenant_id)
    onboarding.connect(
        tenant_id=tenant_id, environment=ENVIRONMENT, waba_id=waba_id, actor=Actor(), access_token=token
    )
    state.recompute(tenant_id=tenant_id, waba_id=waba_id)


def make_after_commit(*, tenant_id: UUID, **_: object) -> None:
    """Receiver of `tenants.signals.address_confirmed`: queue the making when the current transaction commits."""
    if settings.SANDBOX_GRAPH_URL:
        transaction.on_commit(
            lambda: enqueue("phone_numbers.tasks.make_test_world", tenant_id=str(tenant_id))
        )


def make_missing() -> int:
    """Make the worlds that recently confirmed tenants still lack; returns how many were made.

    In random order, so that one that always fails never keeps the others waiting.
    """
    missing = _missing() if settings.SANDBOX_GRAPH_URL else []
    random.shuffle(missing)
    made = failures = 0
    for tenant_id in missing[:MOST_AT_ONCE]:
        if try_to_make(tenant_id):
            made += 1
        elif (failures := failures + 1) >= MOST_FAILURES:
            break
    return made


def try_to_make(tenant_id: UUID) -> bool:
    """Make the world; a failure is logged, and left to the next round or the first use."""
    try:
        make(tenant_id)
    except FAILURES as error:
        log.warning("test_world_not_made", tenant_id=str(tenant_id), error=str(error))
        return False
    except Exception as error:
        if concerns_all(error):
            raise
        log.exception("test_world_not_made", tenant_id=str(tenant_id))
        return False
    return True


def _missing() -> list[UUID]:
    tenants = Tenant.objects.filter(
        id__gte=ids.first_at(now() - SOUGHT),
        created_via="signup",
        status__in=(Tenant.Status.PENDING_APPROVAL, Tenant.Status.ACTIVE),
    )
    by_waba_id = {waba_id_of(tenant_id): tenant_id for tenant_id in tenants.values_list("id", flat=True)}
    complete = BusinessAccount.objects.filter(
        waba_id__in=by_waba_id, subscribed=True, numbers__isnull=False
    ).values_list("waba_id", flat=True)
    return [by_waba_id[waba_id] for waba_id in by_waba_id.keys() - set(complete)]
