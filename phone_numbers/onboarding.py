"""Onboarding: embedded sign-up and connect. It has five steps, and a repeated call resumes where the previous one
stopped.

    exchange the code → check the token → subscribe the account → register the number → store Meta's view

A coexistence number is not registered. Its contacts and chats are requested once its account is subscribed
(`app_data.py`).

Called by the API, the hosted connect page and the sandbox. No step holds a transaction across its call to Meta. Each
step stores its result. The token of a code is stored with the code's hash, and the account and the number are stored as
soon as the token has been shown to have access to them. So a second call, or `subscribe`, completes an onboarding that
failed.

A tenant with long overdue bills (docs/billing.md) cannot add numbers. It can reconnect its own numbers, because a new
token is a repair. The sandbox is never billed, so it is not restricted.
"""

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from gateway.api.errors import Conflict, InvalidRequest
from gateway.clock import now
from gateway.database.partitions import delete_free
from gateway.database.transactions import leave_database
from gateway.upstream import blocking_client, oauth
from gateway.upstream import numbers as upstream
from gateway.upstream.calls import GraphAnswer, platform
from gateway.upstream.numbers import Graph
from phone_numbers import app_data, leaving
from phone_numbers.connection import state
from phone_numbers.models import BusinessAccount, PhoneNumber, RedeemedCode, TakenAway
from phone_numbers.senders_and_owners import OWNER_SECONDS
from phone_numbers.sync import read_again_if_unanswered, registration_columns, store_view
from phone_numbers.tokens import Refused, accepted, accepted_for, ends_soon, graph_of, set_ends
from tenants.audit import Actor
from tenants.models import ApiKey
from tenants.tenant_status import NewNumbersClosed, is_restricted


def require_new_number_allowed(*, tenant_id: UUID, environment: str) -> None:
    """Raise NewNumbersClosed when the tenant may not add a number."""
    if _is_bounded(tenant_id, environment):
        raise NewNumbersClosed


def numbers_allowed(*, tenant_id: UUID, environment: str, waba_id: str) -> frozenset[str] | None:
    """The ids of the numbers that may be connected on an account. None means any number.

    Raises NewNumbersClosed when no number may be connected.
    """
    if not _is_bounded(tenant_id, environment):
        return None
    numbers = PhoneNumber.objects.for_tenant(tenant_id).filter(account__waba_id=waba_id)
    own = frozenset(numbers.values_list("phone_number_id", flat=True))
    if not own:
        raise NewNumbersClosed
    return own


def session_allowed(*, tenant_id: UUID, environment: str) -> bool:
    """Whether a connect session may be opened. A tenant with long overdue bills may open one only if an account needs a
    new token.
    """
    return not _is_bounded(tenant_id, environment) or _needs_a_token(tenant_id, environment)


def require_session_allowed(*, tenant_id: UUID, environment: str) -> None:
    """Raise NewNumbersClosed when a connect session could only add a number."""
    if not session_allowed(tenant_id=tenant_id, environment=environment):
        raise NewNumbersClosed


def _is_bounded(tenant_id: UUID, environment: str) -> bool:
    return environment == ApiKey.Environment.LIVE and is_restricted(tenant_id)


def _needs_a_token(tenant_id: UUID, environment: str) -> bool:
    """Whether an account with numbers needs a new token. Its token may be rejected or about to expire, or Meta has
    removed the account or one of its numbers.
    """
    removed = TakenAway.ACCOUNT_REMOVED
    lost = Q(token_invalid_at__isnull=False) | Q(taken_away=removed) | Q(numbers__taken_away=removed)
    accounts = BusinessAccount.objects.for_environment(tenant_id, environment).filter(numbers__isnull=False)
    return accounts.filter(lost | ends_soon()).exists()


CODE_MEMORY = timedelta(days=1)
SAME_CALL_SECONDS = 2.0
"""How long a call with a used code waits for its token, because a simultaneous call may be storing the token."""
LOOK_SECONDS = 0.05
USED_CODE = 36009
"""Meta's subcode of error 100 for a used code."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A token that passed the connect rule for one account."""

    environment: str
    waba_id: str
    token: str = field(repr=False)
    facts: oauth.TokenFacts

    @property
    def graph(self) -> Graph:
        return Graph(self.environment, self.token)


def embedded_signup(
    *,
    tenant_id: UUID,
    environment: str,
    code: str,
    waba_id: str,
    phone_number_id: str,
    actor: Actor,
    pin: str | None = None,
) -> PhoneNumber:
    """Connect one number with the code of an embedded sign-up (specification 4).

    Raises InvalidRequest (connect rule), Conflict (account or number of another tenant, or a simultaneous call),
    NewNumbersClosed (overdue bills), Refused, MetaUnreachable and UpstreamUnreachable.
    """
    allowed = numbers_allowed(tenant_id=tenant_id, environment=environment, waba_id=waba_id)
    if allowed is not None and phone_number_id not in allowed:
        raise NewNumbersClosed
    token = exchange(tenant_id=tenant_id, environment=environment, code=code)
    grant = check(environment=environment, token=token, waba_id=waba_id)
    read_at = now()
    views = {phone_number_id: prove_number(grant, phone_number_id)}
    account, (number,) = adopt(
        tenant_id=tenant_id, grant=grant, views=views, read_at=read_at, actor=actor, only_whole=True
    )
    subscribe(account)
    register(number, pin=pin)
    refresh(account, number)
    return PhoneNumber.objects.select_related("account").get(pk=number.pk)


def connect(
    *,
    tenant_id: UUID,
    environment: str,
    waba_id: str,
    actor: Actor,
    access_token: str | None = None,
    code: str | None = None,
) -> tuple[list[PhoneNumber], list[str]]:
    """Connect an account with all its numbers, with a token or a code. Numbers are not registered.

    Returns the tenant's numbers of the account, and the ids of numbers that belong to another tenant and stay there.
    Numbers that `numbers_allowed` excludes are skipped. Raises the errors of `embedded_signup`.
    """
    allowed = numbers_allowed(tenant_id=tenant_id, environment=environment, waba_id=waba_id)
    token = access_token or exchange(tenant_id=tenant_id, environment=environment, code=code or "")
    grant = check(environment=environment, token=token, waba_id=waba_id)
    read_at = now()
    listed = {str(view["id"]): view for view in list_numbers(grant.graph, waba_id)}
    views = {key: view for key, view in listed.items() if allowed is None or key in allowed}
    account, numbers = adopt(tenant_id=tenant_id, grant=grant, views=views, read_at=read_at, actor=actor)
    subscribe(account)
    for number in numbers:
        store_view(number, views[number.phone_number_id], read_at=read_at)
    own = list(account.numbers.select_related("account").defer("pin", "meta_snapshot").order_by("id"))
    return own, sorted(views.keys() - {number.phone_number_id for number in numbers})


# --- Step 1: exchange the code ------------------------------------------------------------------------------
def exchange(*, tenant_id: UUID, environment: str, code: str) -> str:
    """Exchange a code for its token. For a day, the same code returns the stored token without a call to Meta.

    Raises Conflict when a simultaneous call with the same code was faster. If both calls continued, both would register
    the number, and Meta allows only ten registrations in 72 hours. Raises InvalidRequest when Meta returns no
    token, and the errors of `accepted`.
    """
    code_hash = hashlib.sha256(code.encode()).hexdigest()
    redeemed = RedeemedCode.objects.filter(tenant_id=tenant_id, environment=environment, code_hash=code_hash)
    if known := redeemed.first():
        return str(known.access_token)
    try:
        answer = accepted(oauth.exchange_code(environment=environment, code=code))
    except Refused as refused:
        if _is_used(refused.answer) and _comes_soon(redeemed):
            raise Conflict(
                "This sign-up is being finished already.",
                hint="Send the same request again in a few seconds: you then get the answer of the sign-up.",
            ) from None
        raise
    token = answer.json().get("access_token")
    if not isinstance(token, str) or not token:
        raise InvalidRequest.of(code="Meta gave no token for this code.")
    RedeemedCode.objects.get_or_create(
        tenant_id=tenant_id,
        environment=environment,
        code_hash=code_hash,
        defaults={"access_token": token},
    )
    return token


def _is_used(answer: GraphAnswer) -> bool:
    """Whether Meta answered that the code was used before (upstream fact 1.8)."""
    error = answer.json().get("error")
    return isinstance(error, dict) and error.get("error_subcode") == USED_CODE


def _comes_soon(redeemed: QuerySet[RedeemedCode]) -> bool:
    ends_at = time.monotonic() + SAME_CALL_SECONDS
    while not redeemed.exists():
        if time.monotonic() >= ends_at:
            return False
        leave_database()
        time.sleep(LOOK_SECONDS)
    return True


def prune_redeemed_codes() -> None:
    """Delete tokens of codes older than a day. By then the sign-up has finished or needs a new code."""
    delete_free(RedeemedCode.objects.filter(created_at__lt=now() - CODE_MEMORY))


# --- Step 2: check the token, and what it proves ------------------------------------------------------------
def check(*, environment: str, token: str, waba_id: str) -> Grant:
    """Check the connect rule. The token must be valid, belong to the service's app, have both scopes, and list the
    account in the granular scopes.

    Newer tokens have `whatsapp_business_manage_events` instead of the management scope. Such a token passes when it can
    read the account's numbers (upstream fact 0.8). Raises InvalidRequest with `details.granular_scopes`.
    """
    facts = oauth.token_facts(accepted(oauth.debug_token(environment=environment, token=token)))
    if not facts.valid:
        _refuse("The token is not valid: it is unknown, has expired or was revoked.", facts)
    if facts.app_id != platform(environment).app_id:
        _refuse("The token belongs to another app.", facts)
    if not facts.opens(oauth.MESSAGING, waba_id):
        _refuse(f"The token does not have the permission {oauth.MESSAGING} for this account.", facts)
    if not facts.opens(oauth.MANAGEMENT, waba_id):
        events_instead = facts.opens(oauth.MANAGE_EVENTS, waba_id)
        if not events_instead or not _may_list_numbers(Graph(environment, token), waba_id):
            _refuse(f"The token does not have the permission {oauth.MANAGEMENT} for this account.", facts)
    return Grant(environment, waba_id, token, facts)


def _may_list_numbers(graph: Graph, waba_id: str) -> bool:
    try:
        accepted(next(graph.number_pages(waba_id)))
    except Refused as refusal:
        if refusal.verdict.throttled:
            raise
        return False
    return True


def _refuse(reason: str, facts: oauth.TokenFacts) -> NoReturn:
    raise InvalidRequest(
        reason,
        hint="Let the customer grant this app both scopes for the account, and connect with the new token.",
        details={"granular_scopes": list(facts.granular_scopes)},
    )


def prove_number(grant: Grant, phone_number_id: str) -> Mapping[str, Any]:
    """Meta's view of the number, read with the token. Raises InvalidRequest or Refused when the number is not part of
    the account.

    When the token opens only this account, reading the number is proof. Otherwise the account's list of numbers must
    contain it. Meta answers a read of any object, but only a number has a display number.
    """
    if all(grant.facts.opens_only(scope, grant.waba_id) for scope in (oauth.MESSAGING, oauth.MANAGEMENT)):
        view = accepted(grant.graph.number(phone_number_id)).json()
        if "display_phone_number" in view:
            return view
    else:
        listed = {str(view["id"]): view for view in list_numbers(grant.graph, grant.waba_id)}
        if phone_number_id in listed:
            return listed[phone_number_id]
    raise InvalidRequest.of(phone_number_id="This number is not one of the account's.")


def list_numbers(graph: Graph, waba_id: str) -> list[dict[str, Any]]:
    """Meta's view of all numbers of an account. Raises the errors of `accepted` for the first page that fails."""
    return [
        view
        for page in graph.number_pages(waba_id)
        for view in blocking_client.rows(accepted(page))
        if view.get("id")
    ]


def adopt(
    *,
    tenant_id: UUID,
    grant: Grant,
    views: Mapping[str, Mapping[str, Any]],
    read_at: datetime,
    actor: Actor,
    only_whole: bool = False,
) -> tuple[BusinessAccount, Sequence[PhoneNumber]]:
    """Store the account with its token and its proven numbers for the tenant. The read of the numbers' views began at
    `read_at`. Raises Conflict for an account of another tenant or environment.

    Numbers that another tenant has are left out. With `only_whole`, such a number raises Conflict instead. New numbers
    are `pending` with `not_subscribed` until the next steps set their facts.
    """
    leaving.make_way(waba_id=grant.waba_id, phone_number_ids=views.keys(), new_owner=tenant_id)
    if leaving.was_left(waba_id=grant.waba_id, phone_number_ids=views.keys(), new_owner=tenant_id):
        # An event of the new owner must not reach the former one.
        leave_database()
        time.sleep(OWNER_SECONDS)
    with state.facts_change(tenant_id=tenant_id, waba_id=grant.waba_id):
        account = _adopt_account(tenant_id, grant)
        adopted = [
            _adopt_number(account, number_id, view, read_at=read_at) for number_id, view in views.items()
        ]
        numbers = [number for number in adopted if number is not None]
        if only_whole and len(numbers) < len(views):
            raise leaving.held_by_another("number")
        actor.record(
            "account.connect",
            tenant_id=tenant_id,
            target_type="account",
            target_id=account.waba_id,
            environment=account.environment,
            phone_number_ids=[number.phone_number_id for number in numbers],
        )
        return account, numbers


def _adopt_account(tenant_id: UUID, grant: Grant) -> BusinessAccount:
    account, created = BusinessAccount.objects.select_for_update().get_or_create(
        waba_id=grant.waba_id,
        defaults={
            "tenant_id": tenant_id,
            "environment": grant.environment,
            "access_token": grant.token,
            "token_expires_at": grant.facts.expires_at,
            "data_access_expires_at": grant.facts.data_access_expires_at,
            "token_checked_at": now(),
        },
    )
    if account.tenant_id != tenant_id:
        raise leaving.held_by_another("business account")
    if account.environment != grant.environment:
        raise Conflict(f"This business account is connected in the {account.environment} environment.")
    if not created:
        if account.access_token != grant.token:
            account.token_warned_days = None
        set_ends(account, grant.facts)
        account.access_token = grant.token
        account.token_checked_at = account.facts_changed_at = now()
        account.token_invalid_at = None
        account.save()
    return account


def _adopt_number(
    account: BusinessAccount, phone_number_id: str, view: Mapping[str, Any], *, read_at: datetime
) -> PhoneNumber | None:
    """Create or update a number of the account. None when another tenant has it.

    The registration of a number that exists already may have changed at Meta since the last sync.
    """
    columns = {
        name: value
        for name, value in upstream.number_columns(view).items()
        if name in {"display_phone_number", "digits", "coexistence"}
    }
    number, _ = PhoneNumber.objects.get_or_create(
        phone_number_id=phone_number_id,
        defaults={
            "account": account,
            "tenant_id": account.tenant_id,
            "environment": account.environment,
            "connection_detail": "not_subscribed",
            **columns,
        },
    )
    if number.tenant_id != account.tenant_id:
        return None
    PhoneNumber.objects.filter(pk=number.pk).update(
        account=account,
        environment=account.environment,
        taken_away=None,
        **columns,
        **registration_columns(number, view, read_at=read_at),
    )
    number.refresh_from_db()
    return number


# --- Step 3: subscribe the account --------------------------------------------------------------------------
def subscribe(account: BusinessAccount) -> None:
    """Subscribe the service's app to the account's notifications. Safe to repeat.

    A successful subscription also proves that the account exists again if Meta had reported its removal. In the same
    transaction, the contacts and chats of its coexistence numbers are scheduled.
    """
    with read_again_if_unanswered(account):
        accepted_for(account, graph_of(account).subscribe(account.waba_id))
    with state.facts_change(tenant_id=account.tenant_id, waba_id=account.waba_id):
        current = BusinessAccount.objects.select_for_update().get(pk=account.pk)
        current.subscribed, current.facts_changed_at = True, now()
        if current.taken_away == TakenAway.ACCOUNT_REMOVED:
            current.taken_away = None
        current.save(update_fields=["subscribed", "taken_away", "facts_changed_at"])
        for number in current.numbers.filter(coexistence=True).defer("pin", "meta_snapshot"):
            app_data.begin(number)


# --- Step 4: register the number ----------------------------------------------------------------------------
WRONG_PIN = 133005


def register(number: PhoneNumber, *, pin: str | None) -> None:
    """Register the number with the Cloud API, unless it is a coexistence number or already registered."""
    if not number.coexistence and not (number.registered and pin in {None, number.pin}):
        register_at_meta(number, pin=pin)


def register_at_meta(number: PhoneNumber, *, pin: str | None, body: bytes | None = None) -> GraphAnswer:
    """Register the number with the given PIN, else the stored PIN, else a new PIN. Returns Meta's answer.

    `body` is the caller's own body for Meta, and `pin` is the PIN in it. With a body, no PIN is generated. A generated
    PIN that Meta rejects is not kept, because the number has another PIN and Meta counts wrong ones.
    """
    account, is_own = number.account, body is None and pin is None
    chosen = stored_or_new_pin(number) if is_own else pin
    graph = graph_of(account)
    try:
        with read_again_if_unanswered(account):
            answer = accepted_for(account, graph.register(number.phone_number_id, pin=chosen, body=body))
    except Refused as refusal:
        if is_own and refusal.verdict.code == WRONG_PIN:
            PhoneNumber.objects.filter(pk=number.pk, pin_is_untold=True).update(pin=None, pin_is_untold=False)
        raise
    record_registered(number, pin=pin)
    return answer


def stored_or_new_pin(number: PhoneNumber) -> str:
    """The number's stored PIN, or a new PIN. A new PIN is stored before its first use, so that it cannot be lost."""
    with transaction.atomic():
        current = PhoneNumber.objects.select_for_update(of=("self",)).get(pk=number.pk)
        if current.pin is None:
            current.pin = f"{secrets.randbelow(10**6):06d}"
            current.pin_is_untold = True
            current.save(update_fields=["pin", "pin_is_untold"])
        return str(current.pin)


def record_registered(number: PhoneNumber, *, pin: str | None) -> None:
    """Store that Meta registered the number. `pin` is the caller's PIN. None means that the stored PIN was used."""
    moment = now()
    kept = {} if pin is None else {"pin": pin, "pin_is_untold": False}
    with state.facts_change(tenant_id=number.tenant_id, phone_number_id=number.phone_number_id):
        PhoneNumber.objects.filter(pk=number.pk).update(
            registered=True, registered_at=moment, facts_changed_at=moment, **kept
        )


def take_unshown_pin(number: PhoneNumber) -> str | None:
    """The PIN that the service generated and registered the number with. The first call returns it. Later calls return
    None.
    """
    with transaction.atomic():
        current = PhoneNumber.objects.select_for_update(of=("self",)).get(pk=number.pk)
        if not (current.pin_is_untold and current.registered):
            return None
        current.pin_is_untold = False
        current.save(update_fields=["pin_is_untold"])
        return str(current.pin)


# --- Step 5: store Meta's view ------------------------------------------------------------------------------
def refresh(account: BusinessAccount, number: PhoneNumber) -> Mapping[str, Any]:
    """Read the number from the Graph API, store the view and return it. Raises Refused and UpstreamUnreachable."""
    read_at = now()
    view = accepted_for(account, graph_of(account).number(number.phone_number_id)).json()
    store_view(number, view, read_at=read_at)
    return view
