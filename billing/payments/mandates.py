"""Autopay mandates: requested, approved on the provider's page, then synchronised with the provider.

Called by `POST /v1/billing/mandate`, `notices.py` and `billing_run.py`. The state is always read from the provider,
so a notice that is lost, repeated or late changes nothing. A tenant has at most one active or paused mandate; a new one
that becomes active replaces it, and the old one is cancelled at the provider.
"""

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from billing.buyers import profiles
from billing.isolation import each
from billing.mails import messages
from billing.models import INDIA, Mandate
from billing.payments.provider import MandateState, Payer, ProviderRefused, ProviderUnreachable, provider
from gateway.api.errors import InvalidRequest
from tenants.models import Tenant

log = structlog.get_logger(__name__)

Status, Method = Mandate.Status, Mandate.Method

DEFAULT_CAP_PAISE = 1_500_000
"""Debits up to 15,000 rupees need no further authentication (RBI e-mandate framework 2026): 49 numbers with GST."""
LARGEST_CAP_PAISE = {Method.UPI: 1_500_000, Method.CARD: 1_500_000, Method.EMANDATE: 100_000_000}
PENDING_FOR = timedelta(days=7)
"""How long the approval of a mandate is waited for."""
_IN_FORCE = (Status.ACTIVE, Status.PAUSED)


def ask_for(
    *, tenant_id: UUID, method: str, max_amount_paise: int, return_url: str | None, at: datetime
) -> Mandate:
    """A pending mandate with the page on which it is approved; asked again, the same one while it waits.

    Raises InvalidRequest with `details.missing` for an incomplete profile, and for an amount beyond the method's
    limit; ProviderUnreachable, ProviderRefused.
    """
    tenant = Tenant.objects.get(pk=tenant_id)
    profile = profiles.profile_of(tenant)
    if missing := profiles.missing(profile):
        raise InvalidRequest("The billing profile is not complete.", details={"missing": missing})
    if profile.country != INDIA:
        raise InvalidRequest("Autopay needs an account in India. Pay each invoice by its link, with a card.")
    if max_amount_paise > LARGEST_CAP_PAISE[Method(method)]:
        raise InvalidRequest.of(
            max_amount_paise=f"At most {LARGEST_CAP_PAISE[Method(method)]} with method {method}."
        )
    waiting = (
        Mandate.objects.for_tenant(tenant_id)
        .filter(
            provider=settings.PAYMENT_PROVIDER,
            method=method,
            max_amount_paise=max_amount_paise,
            status=Status.PENDING,
            return_url=return_url,
            authorization_expires_at__gt=at,
        )
        .order_by("-id")
        .first()
    )
    if waiting is not None:
        return waiting
    mandate = Mandate.objects.create(
        tenant=tenant,
        provider=settings.PAYMENT_PROVIDER,
        method=method,
        max_amount_paise=max_amount_paise,
        return_url=return_url,
        created_at=at,
        replaces=Mandate.objects.for_tenant(tenant_id).filter(status__in=_IN_FORCE).first(),
    )
    try:
        registration = provider(mandate.provider).register_mandate(
            payer=Payer(profile.legal_name, profiles.email_of(tenant) or "", profile.phone),
            method=method,
            max_amount_paise=max_amount_paise,
            receipt=mandate.public_id,
            return_url=return_url,
        )
    except (ProviderRefused, ProviderUnreachable):
        Mandate.objects.filter(pk=mandate.pk).update(status=Status.EXPIRED)
        raise
    mandate.provider_order_id = registration.order_id
    mandate.provider_customer_id = registration.customer_id
    mandate.authorization_url = registration.url
    mandate.authorization_expires_at = registration.expires_at
    mandate.save(
        update_fields=[
            "provider_order_id",
            "provider_customer_id",
            "authorization_url",
            "authorization_expires_at",
        ]
    )
    return mandate


def current(tenant_id: UUID) -> Mandate | None:
    """The mandate to show: the one in force, else the newest."""
    own = Mandate.objects.for_tenant(tenant_id).order_by("-id")
    return own.filter(status__in=_IN_FORCE).first() or own.first()


def sync(mandate_id: UUID, at: datetime) -> None:
    """Read a mandate's state from the provider and store it. Raises ProviderUnreachable, ProviderRefused."""
    mandate = Mandate.objects.get(pk=mandate_id)
    if not (mandate.provider_order_id and mandate.provider_customer_id):
        return
    state = provider(mandate.provider).find_mandate(
        order_id=mandate.provider_order_id,
        customer_id=mandate.provider_customer_id,
        token_id=mandate.provider_token_id,
    )
    if state is not None:
        _store(mandate, state)
    elif mandate.status == Status.PENDING and mandate.created_at + PENDING_FOR <= at:
        Mandate.objects.filter(pk=mandate_id, status=Status.PENDING).update(status=Status.EXPIRED)
    cancel_replaced(mandate.tenant_id)


def _store(seen: Mandate, state: MandateState) -> None:
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=seen.tenant_id)
        mandate = Mandate.objects.select_related("tenant").get(pk=seen.pk)
        before = mandate.status
        if before not in {Status.PENDING, *_IN_FORCE}:
            return
        if state.status == Status.ACTIVE and before == Status.PENDING:
            Mandate.objects.for_tenant(mandate.tenant_id).filter(status__in=_IN_FORCE).update(
                status=Status.CANCELLED, cancel_at_provider=True
            )
        # A token that is paused before it was ever active replaces nothing.
        if not (before == Status.PENDING and state.status == Status.PAUSED):
            mandate.status = state.status
        mandate.provider_token_id = state.token_id
        mandate.instrument, mandate.expires_at = state.instrument, state.expires_at
        mandate.save(update_fields=["status", "provider_token_id", "instrument", "expires_at"])
        if before == Status.ACTIVE and mandate.status != Status.ACTIVE:
            messages.mandate_stopped(mandate)


def cancel_replaced(tenant_id: UUID | None = None) -> None:
    """Tell the provider about mandates that were replaced; what fails is tried again by the next run."""
    replaced = Mandate.objects.filter(cancel_at_provider=True)
    for mandate in replaced.filter(tenant_id=tenant_id) if tenant_id else replaced:
        try:
            provider(mandate.provider).cancel_mandate(
                customer_id=mandate.provider_customer_id or "", token_id=mandate.provider_token_id or ""
            )
        except ProviderUnreachable:
            continue
        except ProviderRefused as refusal:
            log.info("mandate_not_cancelled", mandate_id=mandate.public_id, reason=refusal.error["reason"])
        Mandate.objects.filter(pk=mandate.pk).update(cancel_at_provider=False)


def reconcile(at: datetime) -> int:
    """Ask about pending mandates, whose notice may be lost; returns how many."""
    Mandate.objects.filter(status__in=_IN_FORCE, expires_at__lte=at).update(status=Status.EXPIRED)
    # In any order: if the provider is silent for some, the others have their turn in another run.
    pending = Mandate.objects.filter(status=Status.PENDING, provider_order_id__isnull=False).order_by("?")
    cancel_replaced()
    return each(
        pending.values_list("id", flat=True),
        lambda mandate_id: _sync_quietly(mandate_id, at),
        step="mandates",
    )


def _sync_quietly(mandate_id: UUID, at: datetime) -> bool:
    """Synchronise one of many: a refusal is logged, the mandate expires by itself."""
    try:
        sync(mandate_id, at)
    except ProviderRefused as error:
        log.warning("mandate_refused", mandate_id=str(mandate_id), error=error.code)
    return True
