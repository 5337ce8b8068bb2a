"""What a business whose bills are long overdue may still connect (docs/billing.md).

Its own numbers again, since a new token is a repair; no further one. The test world is never billed: nothing of it is
closed.
"""

from uuid import UUID

from django.db.models import Q

from phone_numbers.models import BusinessAccount, PhoneNumber, TakenAway
from phone_numbers.tokens import WARNING_DAYS, ending_within
from tenants.models import ApiKey
from tenants.standing.billing_restriction import NewNumbersClosed, is_restricted


def require_new_number_allowed(*, tenant_id: UUID, environment: str) -> None:
    """Raise NewNumbersClosed when no further number may be brought in."""
    if _is_bounded(tenant_id, environment):
        raise NewNumbersClosed


def numbers_allowed(*, tenant_id: UUID, environment: str, waba_id: str) -> frozenset[str] | None:
    """The ids of the numbers that may be connected on an account; None: any.

    Raises NewNumbersClosed when there are none.
    """
    if not _is_bounded(tenant_id, environment):
        return None
    numbers = PhoneNumber.objects.for_tenant(tenant_id).filter(account__waba_id=waba_id)
    own = frozenset(numbers.values_list("phone_number_id", flat=True))
    if not own:
        raise NewNumbersClosed
    return own


def session_allowed(*, tenant_id: UUID, environment: str) -> bool:
    """Whether a connect session may be opened: always, or only because an account needs a new token."""
    return not _is_bounded(tenant_id, environment) or _needs_a_token(tenant_id, environment)


def require_session_allowed(*, tenant_id: UUID, environment: str) -> None:
    """Raise NewNumbersClosed when a connect session could only bring a further number."""
    if not session_allowed(tenant_id=tenant_id, environment=environment):
        raise NewNumbersClosed


def _is_bounded(tenant_id: UUID, environment: str) -> bool:
    return environment == ApiKey.Environment.LIVE and is_restricted(tenant_id)


def _needs_a_token(tenant_id: UUID, environment: str) -> bool:
    """Whether the token of an account with numbers is refused, withdrawn, or about to end."""
    removed = TakenAway.ACCOUNT_REMOVED
    lost = Q(token_invalid_at__isnull=False) | Q(taken_away=removed) | Q(numbers__taken_away=removed)
    accounts = BusinessAccount.objects.for_tenant(tenant_id).filter(
        environment=environment, numbers__isnull=False
    )
    return accounts.filter(lost | ending_within(max(WARNING_DAYS))).exists()
