"""Autopay mandates. A mandate is requested, approved on the provider's page, then synced with the provider.

Called by the API, the console, `provider_notices.py` and `billing_run.py`. The state is always read from the provider,
so a lost, repeated or late notice makes no difference. A tenant has at most one active or paused mandate. When a second
mandate becomes active, the first is cancelled at the provider, once its debit in flight has ended.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Sum

from billing import buyers, ledger
from billing.error_isolation import each
from billing.models import LedgerEntry, LedgerPosting, Mandate, PaymentAttempt
from billing.payments.provider import (
    MandateState,
    Payer,
    Payment,
    ProviderRefused,
    ProviderUnreachable,
    provider,
    require_pages_left,
)
from gateway.api.errors import Conflict, InvalidRequest
from tenants import mail
from tenants.models import Tenant

log = structlog.get_logger(__name__)

Status, Method = Mandate.Status, Mandate.Method

DEFAULT_CAP_PAISE = 1_500_000
"""Debits up to 15,000 rupees need no further authentication (RBI e-mandate framework 2026). That covers 49 numbers
with GST.
"""
LARGEST_CAP_PAISE = {Method.UPI: 1_500_000, Method.CARD: 1_500_000, Method.EMANDATE: 100_000_000}
PENDING_FOR = timedelta(days=7)
"""How long a mandate waits for approval. Its page expires after this time."""
POLLED_FOR = 60.0
"""Seconds that a run spends on pending and paused mandates."""
_ASKING_FOR = timedelta(minutes=1)
"""How long a call for a page may take before it counts as interrupted."""
_IN_FORCE = (Status.ACTIVE, Status.PAUSED)


def ask_for(
    *, tenant_id: UUID, method: str, max_amount_paise: int, return_url: str | None, at: datetime
) -> Mandate:
    """A pending mandate with its approval page. A repeated call with the same values returns the same mandate.

    A tenant has one pending mandate. A request with other values ends it. Raises InvalidRequest for an incomplete
    profile (with `details.missing`), a buyer abroad, and an amount beyond the method's limit. Raises RateLimited after
    `PAGES_A_DAY`, Conflict while another call creates a page, ProviderUnreachable and ProviderRefused.
    """
    tenant = Tenant.objects.get(pk=tenant_id)
    profile = buyers.profile_of(tenant)
    if missing := buyers.missing(profile):
        raise InvalidRequest("The billing profile is not complete.", details={"missing": missing})
    if not buyers.can_set_up_autopay(profile):
        raise InvalidRequest("Autopay needs an account in India. Pay each invoice by its link, with a card.")
    if max_amount_paise > LARGEST_CAP_PAISE[Method(method)]:
        raise InvalidRequest.of(
            max_amount_paise=f"At most {LARGEST_CAP_PAISE[Method(method)]} with method {method}."
        )
    with transaction.atomic():
        # The lock serialises the calls of a tenant, so simultaneous calls create only one page.
        Tenant.objects.select_for_update(of=("self",), no_key=True).only("id").get(pk=tenant_id)
        wanted = {
            "provider": settings.PAYMENT_PROVIDER,
            "method": method,
            "max_amount_paise": max_amount_paise,
        }
        mandate, is_new = _pending(tenant_id, wanted, return_url, at)
    if not is_new:
        return mandate
    try:
        registration = provider(mandate.provider).register_mandate(
            payer=Payer(profile.legal_name, buyers.email_of(tenant) or "", profile.phone),
            method=method,
            max_amount_paise=max_amount_paise,
            receipt=mandate.public_id,
            expires_at=at + PENDING_FOR,
        )
    except (ProviderRefused, ProviderUnreachable):
        Mandate.objects.filter(pk=mandate.pk).update(status=Status.EXPIRED)
        raise
    made = {**asdict(registration), "authorization_expires_at": at + PENDING_FOR}
    Mandate.objects.filter(pk=mandate.pk).update(**made)
    mandate.refresh_from_db()
    return mandate


def _pending(
    tenant_id: UUID, wanted: dict[str, Any], return_url: str | None, at: datetime
) -> tuple[Mandate, bool]:
    """The tenant's pending mandate with these values, else a new mandate, and whether the mandate is new. A new mandate
    ends a pending mandate.
    """
    own = Mandate.objects.for_tenant(tenant_id)
    waiting = own.filter(status=Status.PENDING).order_by("-id")
    known = waiting.filter(**wanted, authorization_expires_at__gt=at).first()
    if known is not None:
        return known, False
    if waiting.filter(authorization_url=None, created_at__gt=at - _ASKING_FOR).exists():
        raise Conflict("A mandate is being set up at the moment. Repeat in a minute.")
    require_pages_left(own.filter(authorization_url__isnull=False), at, "mandates")
    waiting.update(status=Status.CANCELLED, cancel_at_provider=True)
    standing = own.filter(status__in=_IN_FORCE).first()
    made = Mandate.objects.create(
        tenant_id=tenant_id, created_at=at, replaces=standing, return_url=return_url, **wanted
    )
    return made, True


def current(tenant_id: UUID) -> Mandate | None:
    """The mandate to show: the mandate in force, else the newest. None for a tenant without mandates."""
    own = Mandate.objects.for_tenant(tenant_id).order_by("-id")
    return own.filter(status__in=_IN_FORCE).first() or own.first()


def sync(mandate_id: UUID, at: datetime) -> None:
    """Read a mandate's payments and state from the provider, and store them. Raises ProviderUnreachable,
    ProviderRefused.
    """
    mandate = Mandate.objects.get(pk=mandate_id)
    if not (mandate.provider_order_id and mandate.provider_customer_id):
        return
    pay = provider(mandate.provider)
    approvals = [payment for payment in pay.payments_of(mandate.provider_order_id) if payment.token_id]
    for payment in approvals:
        if payment.status == "captured":
            _book_check(mandate.tenant_id, payment, at)
    # A failed try has a token too, and the payer can try again on the same page.
    approved = next((payment.token_id for payment in reversed(approvals) if payment.status != "failed"), None)
    token_id = (mandate.provider_token_id if mandate.status in _IN_FORCE else None) or approved
    if token_id is not None:
        _store(mandate, pay.mandate(customer_id=mandate.provider_customer_id, token_id=token_id), at)
    elif mandate.status == Status.PENDING and mandate.created_at + PENDING_FOR <= at:
        Mandate.objects.filter(pk=mandate_id, status=Status.PENDING).update(status=Status.EXPIRED)
    cancel_replaced(mandate.tenant_id)


def sync_after_failure(mandate_id: UUID, at: datetime) -> None:
    """Read a mandate whose debit failed, because a bank may end a mandate without a notice. A mandate that the provider
    no longer knows has ended. Raises ProviderUnreachable.
    """
    try:
        sync(mandate_id, at)
    except ProviderRefused:
        mandate = Mandate.objects.get(pk=mandate_id)
        if mandate.provider_token_id is not None:
            ended = MandateState(mandate.provider_token_id, Status.CANCELLED, mandate.instrument)
            _store(mandate, ended, at)


def _book_check(tenant_id: UUID, check: Payment, at: datetime) -> None:
    """Post what a payment that approved a mandate collected or paid back since its last posting. The key contains the
    refunded amount, which only grows, so a stale answer changes nothing.
    """
    clearing, checks = LedgerPosting.Account.CLEARING, LedgerPosting.Account.CHECKS
    with ledger.account(tenant_id):
        own = LedgerPosting.objects.filter(account=checks, entry__tenant_id=tenant_id, entry__text=check.id)
        known = -own.aggregate(total=Sum("amount_paise", default=0))["total"]
        if amount := check.amount_paise - check.refunded_paise - known:
            ledger.post(
                LedgerEntry.Act.CHECK,
                f"check {check.id}" + (f" refunded {check.refunded_paise}" if check.refunded_paise else ""),
                at,
                {clearing: amount, checks: -amount},
                tenant_id=tenant_id,
                text=check.id,
            )


def _store(seen: Mandate, state: MandateState, at: datetime) -> None:
    with ledger.account(seen.tenant_id):
        mandate = Mandate.objects.select_related("tenant").get(pk=seen.pk)
        before = mandate.status
        if before not in {Status.PENDING, *_IN_FORCE}:
            if state.status == Status.ACTIVE and mandate.provider_token_id != state.token_id:
                # Approved too late: another approval page had replaced this page, or this page had expired.
                Mandate.objects.filter(pk=mandate.pk).update(
                    provider_token_id=state.token_id, cancel_at_provider=True
                )
            return
        if state.status == Status.ACTIVE and before == Status.PENDING:
            Mandate.objects.for_tenant(mandate.tenant_id).filter(status__in=_IN_FORCE).update(
                status=Status.CANCELLED, cancel_at_provider=True
            )
        # A token that was paused before it became active does not replace another mandate. A mandate in force was
        # approved, so an unknown state of its token does not make it wait for approval again.
        if (before, state.status) != (Status.PENDING, Status.PAUSED) and state.status != Status.PENDING:
            mandate.status = state.status
        mandate.provider_token_id = state.token_id
        mandate.instrument, mandate.expires_at = state.instrument, state.expires_at
        mandate.save(update_fields=["status", "provider_token_id", "instrument", "expires_at"])
        if before == Status.ACTIVE and mandate.status != Status.ACTIVE:
            _notify_stopped(mandate)


def _notify_stopped(mandate: Mandate) -> None:
    """Notify the tenant by mail that the bank or the provider paused or ended autopay."""
    if to := buyers.email_of(mandate.tenant):
        mail.send(to=to, template="mandate_stopped", context={"tenant": mandate.tenant, "mandate": mandate})


def cancel_replaced(tenant_id: UUID | None = None) -> None:
    """Cancel replaced mandates at the provider, except while a debit of theirs is in flight, because the bank would
    reject it. The next run retries failures.
    """
    in_flight = PaymentAttempt.objects.filter(mandate=OuterRef("pk"), status__in=PaymentAttempt.IN_FLIGHT)
    replaced = Mandate.objects.filter(~Exists(in_flight), cancel_at_provider=True)
    if tenant_id is not None:
        replaced = replaced.filter(tenant_id=tenant_id)
    each(list(replaced), _end_at_provider, step="mandates", seconds=POLLED_FOR)


def on_tenant_closing(*, tenant_id: UUID, **_: Any) -> dict[str, int]:
    """Receiver of `tenants.signals.tenant_closing`: end autopay. If the provider does not answer, each run retries.
    Returns the number of ended mandates.
    """
    with ledger.account(tenant_id):
        own = Mandate.objects.for_tenant(tenant_id).filter(status__in=(Status.PENDING, *_IN_FORCE))
        ended = own.update(status=Status.CANCELLED, cancel_at_provider=True)
    cancel_replaced(tenant_id)
    return {"mandates": ended}


def _end_at_provider(mandate: Mandate) -> None:
    pay = provider(mandate.provider)
    try:
        if mandate.provider_token_id is not None:
            pay.cancel_mandate(
                customer_id=mandate.provider_customer_id or "",
                token_id=mandate.provider_token_id,
                method=mandate.method,
            )
        elif mandate.provider_registration_id is not None:
            pay.cancel_registration(mandate.provider_registration_id)
        refused = False
    except ProviderRefused as refusal:
        log.info("mandate_not_cancelled", mandate_id=mandate.public_id, reason=refusal.error["reason"])
        refused = True
    Mandate.objects.filter(pk=mandate.pk).update(cancel_at_provider=False)
    if refused and mandate.provider_token_id is None:
        sync(mandate.pk, mandate.created_at)  # the payer may have just approved the page


def reconcile(at: datetime) -> int:
    """Check pending mandates, because their notices may be lost, and paused ones, because no notice says that the payer
    resumed one. Returns how many were checked.

    Runs after the debits and ends after `POLLED_FOR`, so no debit waits for these mandates.
    """
    Mandate.objects.filter(status__in=_IN_FORCE, expires_at__lte=at).update(status=Status.EXPIRED)
    Mandate.objects.filter(
        status=Status.PENDING, provider_order_id=None, created_at__lte=at - PENDING_FOR
    ).update(status=Status.EXPIRED)
    # In random order, so that if the provider does not answer for some mandates, another run reaches the others.
    waiting = Mandate.objects.filter(
        status__in=(Status.PENDING, Status.PAUSED), provider_order_id__isnull=False
    ).order_by("?")
    cancel_replaced()
    return each(
        waiting.values_list("id", flat=True),
        lambda mandate_id: _sync_quietly(mandate_id, at),
        step="mandates",
        seconds=POLLED_FOR,
    )


def _sync_quietly(mandate_id: UUID, at: datetime) -> bool:
    """Sync one of many mandates. A refusal is only logged, because the mandate expires by itself."""
    try:
        sync(mandate_id, at)
    except ProviderRefused as error:
        log.warning("mandate_refused", mandate_id=str(mandate_id), error=error.code)
    return True
