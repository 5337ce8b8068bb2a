"""Registration of a number with Meta, its verification by a code, its two-step PIN, and its move from another provider
(specification 4).

Each operation makes a Graph API call, stores the change that the call causes, and returns Meta's own response. A
rejection by Meta raises `Refused`, which has the response to pass through. Coexistence numbers are never registered or
deregistered (409 `conflict`).
"""

from uuid import UUID

from django.db import transaction

from gateway.api.errors import Conflict, InvalidRequest
from gateway.clock import now
from gateway.upstream.calls import GraphAnswer
from gateway.upstream.numbers import digits_of
from phone_numbers import onboarding
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber
from phone_numbers.sync import read_again_if_unanswered
from phone_numbers.tokens import accepted_for, graph_of
from tenants.audit import Actor


def register(number: PhoneNumber, *, actor: Actor, pin: str | None, body: bytes | None = None) -> GraphAnswer:
    """Register a number as `onboarding.register_at_meta` does. Raises Conflict for a coexistence number."""
    _refuse_coexistence(number, "registered")
    actor.require_room(tenant_id=number.tenant_id)
    answer = onboarding.register_at_meta(number, pin=pin, body=body)
    _record(number, "number.register", actor)
    return answer


def deregister(number: PhoneNumber, *, actor: Actor, body: bytes | None = None) -> GraphAnswer:
    """Deregister the number from the Cloud API. Raises Conflict for a coexistence number."""
    _refuse_coexistence(number, "deregistered")
    actor.require_room(tenant_id=number.tenant_id)
    graph = graph_of(number.account)
    with read_again_if_unanswered(number.account):
        answer = accepted_for(number.account, graph.deregister(number.phone_number_id, body=body))
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        PhoneNumber.objects.filter(pk=number.pk).update(
            registered=False, registered_at=None, facts_changed_at=now()
        )
        _record(number, "number.deregister", actor)
    return answer


def _record(number: PhoneNumber, action: str, actor: Actor) -> None:
    actor.record(action, tenant_id=number.tenant_id, target_type="number", target_id=number.phone_number_id)


def _refuse_coexistence(number: PhoneNumber, done: str) -> None:
    if number.coexistence:
        raise Conflict(f"A number that is used in the WhatsApp Business app is never {done} by the service.")


def set_two_step_pin(
    number: PhoneNumber, *, actor: Actor, pin: str, body: bytes | None = None
) -> GraphAnswer:
    """Set the two-step PIN and store it for later registrations. `body` is the caller's own body with this PIN."""
    actor.require_room(tenant_id=number.tenant_id)
    graph = graph_of(number.account)
    answer = accepted_for(number.account, graph.set_pin(number.phone_number_id, pin=pin, body=body))
    with transaction.atomic():
        PhoneNumber.objects.filter(pk=number.pk).update(pin=pin, pin_is_untold=False)
        _record(number, "number.two_step", actor)
    return answer


def request_code(number: PhoneNumber, *, code_method: str, language: str) -> GraphAnswer:
    """Request a verification code, which Meta sends to the number."""
    graph = graph_of(number.account)
    return accepted_for(
        number.account,
        graph.request_code(number.phone_number_id, code_method=code_method, language=language),
    )


def verify_code(number: PhoneNumber, *, code: str) -> GraphAnswer:
    """Verify the number with the code that Meta sent. A dash in the code is removed."""
    graph = graph_of(number.account)
    return accepted_for(number.account, graph.verify_code(number.phone_number_id, code=code.replace("-", "")))


def migrate(
    *, tenant_id: UUID, environment: str, actor: Actor, waba_id: str, cc: str, phone_number: str
) -> GraphAnswer:
    """Begin to move a number from another provider. The next calls are request-code, verify-code and register (upstream
    fact 1.5).

    Meta's response contains the number's id. The number is then stored as `pending`. Raises InvalidRequest for an
    account that the tenant does not have.
    """
    account = (
        BusinessAccount.objects.for_tenant(tenant_id).filter(waba_id=waba_id, environment=environment).first()
    )
    if account is None:
        raise InvalidRequest.of(waba_id="This is not one of your business accounts.")
    return add(account, actor=actor, cc=cc, phone_number=phone_number)


def add(
    account: BusinessAccount, *, actor: Actor, cc: str, phone_number: str, body: bytes | None = None
) -> GraphAnswer:
    """Add a number to an account as `pending`, with the id in Meta's answer. `body` is the caller's own body for Meta.
    Without it, the number is moved from another provider. Raises NewNumbersClosed (overdue bills).
    """
    tenant_id, waba_id = account.tenant_id, account.waba_id
    onboarding.require_new_number_allowed(tenant_id=tenant_id, environment=account.environment)
    actor.require_room(tenant_id=tenant_id)
    graph = graph_of(account)
    answer = accepted_for(account, graph.add(waba_id, cc=cc, phone_number=phone_number, body=body))
    if phone_number_id := answer.json().get("id"):
        digits = digits_of(cc) + digits_of(phone_number)
        with state.facts_change(tenant_id=tenant_id, waba_id=waba_id):
            PhoneNumber.objects.get_or_create(
                phone_number_id=str(phone_number_id),
                defaults={
                    "account": account,
                    "tenant_id": tenant_id,
                    "environment": account.environment,
                    "display_phone_number": f"+{digits}",
                    "digits": digits,
                },
            )
            actor.record(
                "number.migrate",
                tenant_id=tenant_id,
                target_type="number",
                target_id=str(phone_number_id),
                waba_id=waba_id,
            )
    return answer
