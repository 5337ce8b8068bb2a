"""Connect sessions: a hosted link on which a tenant's customer connects an account by embedded sign-up.

The API makes and shows them; the hosted page (`pages.py`) finishes them through the same onboarding as
`POST /v1/numbers/embedded-signup`. A session ends once: `connected` or `failed`; open ones expire after an hour. The
link carries the session's id under a signature, so it can be shown again and cannot be guessed.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

from django.conf import settings
from django.core import signing
from django.db import transaction
from django.db.models import Q, QuerySet

from gateway import ids
from gateway.api.errors import Conflict, MetaUnreachable, RateLimited, ServiceError
from gateway.api.query import by_public_id
from gateway.clock import now
from gateway.database.partitions import delete_free
from gateway.upstream.calls import UpstreamUnreachable
from phone_numbers import onboarding
from phone_numbers.models import ConnectSession, PhoneNumber
from phone_numbers.tokens import Refused
from tenants.audit import Actor
from tenants.models import Tenant

# --- Return URLs of connect sessions: the address that a tenant named, checked when it is named.

MAX_LENGTH = 2048
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def problem_of(url: str) -> str | None:
    """What is wrong with a return_url, or None. Only https, or http on this machine; nothing browsers read twice."""
    if len(url) > MAX_LENGTH:
        return f"Must be at most {MAX_LENGTH} characters."
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "Must be a plain ASCII address: percent-encode other characters."
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "Is not a valid address."
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
        return "Must begin with https:// (http:// for localhost)."
    if not parts.hostname or parts.username is not None or parts.password is not None:
        return "Must name a host, without a user name."
    return None


def with_result(url: str, *, session_id: str, status: str) -> str:
    """The return_url with `session_id` and `status` in its query; members of those names in it give way."""
    parts = urlsplit(url)
    own = {"session_id": session_id, "status": status}
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in own]
    return urlunsplit(parts._replace(query=urlencode([*kept, *own.items()])))


LIFETIME = timedelta(hours=1)
MOST_OPEN = 200
"""Open sessions of a tenant in one environment."""
FINISHING = timedelta(minutes=3)
"""How long one answer may be worked on, six calls of the upstream at their slowest, before another may begin."""

_LINKS = signing.Signer(salt="connect-link", sep=".")
_STATES = signing.Signer(salt="connect-state", sep=".")
_TOKEN = re.compile(r"EAA[A-Za-z0-9]+")


def create(*, tenant_id: UUID, environment: str, return_url: str) -> ConnectSession:
    """A new open session of one hour; `return_url` has been checked. Raises RateLimited at the limit."""
    with transaction.atomic():
        # Of two at once at the limit, one waits here and is refused.
        Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant_id)
        waiting = open_sessions(tenant_id=tenant_id, environment=environment)
        if waiting.count() >= MOST_OPEN:
            ends_at = waiting.order_by("expires_at").values_list("expires_at", flat=True).first()
            seconds = math.ceil((ends_at - now()).total_seconds()) if ends_at else 1
            raise RateLimited(
                f"{MOST_OPEN} connect sessions are open, the most that are possible.",
                hint="Make one when your customer is about to connect: it ends after an hour, or once it is used.",
                details={"limit": MOST_OPEN},
                headers={"Retry-After": str(max(1, seconds))},
            )
        return ConnectSession.objects.create(
            tenant_id=tenant_id, environment=environment, return_url=return_url, expires_at=now() + LIFETIME
        )


def open_sessions(*, tenant_id: UUID, environment: str) -> QuerySet[ConnectSession]:
    """The sessions of a tenant that wait for their customer."""
    return ConnectSession.objects.for_environment(tenant_id, environment).filter(
        status=ConnectSession.Status.OPEN, expires_at__gt=now()
    )


def find(*, tenant_id: UUID, environment: str, session_id: str) -> ConnectSession:
    """The tenant's session by its public id. Raises NotFound."""
    own = ConnectSession.objects.for_environment(tenant_id, environment)
    return by_public_id(own, ids.CONNECT_SESSION, session_id, "connect session")


def url_of(session: ConnectSession) -> str:
    """The hosted link to send the customer to."""
    return f"{settings.APP_URL}/connect/{_LINKS.sign(session.public_id)}"


def by_link(token: str) -> ConnectSession | None:
    """The session behind a hosted link, or None when no session has that link."""
    return _signed(_LINKS, token)


def state_of(session: ConnectSession) -> str:
    """What the page sends back with its answer: proves that it was made for this session."""
    return _STATES.sign(session.public_id)


def is_state_of(session: ConnectSession, state: str) -> bool:
    """Whether a state was made by `state_of` for this very session."""
    stated = _signed(_STATES, state)
    return stated is not None and stated.pk == session.pk


def _signed(signer: signing.Signer, text: str) -> ConnectSession | None:
    try:
        key = ids.decode(ids.CONNECT_SESSION, signer.unsign(text))
    except signing.BadSignature:
        return None
    return ConnectSession.objects.select_related("tenant").filter(pk=key).first() if key else None


def return_address(session: ConnectSession) -> str:
    """Return the address after the session: the return_url with `session_id` and `status`, nothing else."""
    connected = session.status == ConnectSession.Status.CONNECTED
    return with_result(
        session.return_url, session_id=session.public_id, status="connected" if connected else "failed"
    )


def finish(
    session: ConnectSession, *, code: str, waba_id: str, phone_number_id: str | None
) -> ConnectSession:
    """Finish an open session with what the sign-up gave; without a number, all of the account's are imported.

    A refusal ends the session as `failed`. When the upstream is silent or busy the session stays open and the same
    answer may be sent again. Raises Conflict while another answer is worked on, MetaUnreachable, Refused
    (throttled, or the upstream's own trouble). A session that is over is returned as it is.
    """
    with _working_on(session) as open_session:
        if open_session is None:
            return ConnectSession.objects.get(pk=session.pk)
        try:
            numbers = _onboard(session, code=code, waba_id=waba_id, phone_number_id=phone_number_id)
        except Refused as refusal:
            if refusal.verdict.throttled or refusal.verdict.status >= 500:
                raise
            return _fail(session, "meta", refusal.verdict.code, _message(refusal))
        except (MetaUnreachable, UpstreamUnreachable):
            raise
        except ServiceError as error:
            return _fail(session, settings.SERVICE_NAME, error.code, error.text)
        return _end(
            session,
            status=ConnectSession.Status.CONNECTED,
            waba_id=waba_id,
            phone_number_ids=[number.phone_number_id for number in numbers],
        )


def _onboard(
    session: ConnectSession, *, code: str, waba_id: str, phone_number_id: str | None
) -> list[PhoneNumber]:
    tenant_id, environment = session.tenant_id, session.environment
    actor = Actor(details={"connect_session": session.public_id})
    if phone_number_id is None:
        numbers, _held_elsewhere = onboarding.connect(
            tenant_id=tenant_id, environment=environment, code=code, waba_id=waba_id, actor=actor
        )
        return numbers
    number = onboarding.embedded_signup(
        tenant_id=tenant_id,
        environment=environment,
        code=code,
        waba_id=waba_id,
        phone_number_id=phone_number_id,
        actor=actor,
    )
    return [number]


def give_up(session: ConnectSession, *, reason: str | None) -> ConnectSession:
    """The customer leaves without connecting, or the sign-up's dialog reported an error: the session fails."""
    with _working_on(session) as open_session:
        if open_session is None:
            return ConnectSession.objects.get(pk=session.pk)
        if reason:
            return _fail(session, "meta", "signup_error", reason[:500])
        return _fail(session, settings.SERVICE_NAME, "cancelled", "The customer left without connecting.")


@contextmanager
def _working_on(session: ConnectSession) -> Iterator[ConnectSession | None]:
    """Claim an open session, or None when it is over or expired. Raises Conflict while another answer is in work."""
    moment = now()
    free = Q(finishing_until__isnull=True) | Q(finishing_until__lt=moment)
    rows = ConnectSession.objects.filter(pk=session.pk, status=ConnectSession.Status.OPEN)
    claim = moment + FINISHING
    if not rows.filter(free, expires_at__gt=moment).update(finishing_until=claim):
        if rows.exclude(free).exists():
            raise Conflict("This sign-up is being finished already.")
        yield None
        return
    try:
        yield session
    finally:
        rows.filter(finishing_until=claim).update(finishing_until=None)


def _message(refusal: Refused) -> str:
    error: Any = refusal.answer.json().get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return _TOKEN.sub("EAA…", str(message or "The upstream refused."))[:500]


def _fail(session: ConnectSession, source: str, code: object, message: str) -> ConnectSession:
    return _end(
        session,
        status=ConnectSession.Status.FAILED,
        error={"source": source, "code": code, "message": message},
    )


def _end(session: ConnectSession, **outcome: Any) -> ConnectSession:
    ConnectSession.objects.filter(pk=session.pk, status=ConnectSession.Status.OPEN).update(
        **outcome, completed_at=now(), finishing_until=None
    )
    return ConnectSession.objects.get(pk=session.pk)


def prune() -> int:
    """Delete sessions made more than EVENT_METADATA_DAYS ago. Returns the number of rows."""
    kept_from = ids.first_at(now() - timedelta(days=settings.EVENT_METADATA_DAYS))
    return delete_free(ConnectSession.objects.filter(pk__lt=kept_from))
