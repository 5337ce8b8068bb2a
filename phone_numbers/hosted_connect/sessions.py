"""Connect sessions: hosted links with which a business connects its account to a tenant by embedded sign-up.

The API creates and shows sessions. The hosted page (`pages.py`) finishes them through the same onboarding as `POST
/v1/numbers/embedded-signup`. A session ends once, as `connected` or `failed`. An open session expires after an hour.
The link contains the session's id with a signature, so the link can be shown again and cannot be guessed.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import unquote_plus, urlencode, urlsplit, urlunsplit
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
from phone_numbers.models import MAX_RETURN_URL_LENGTH, ConnectSession, PhoneNumber
from phone_numbers.tokens import Refused
from tenants.audit import Actor
from tenants.models import Tenant

# --- The return_url of a connect session. It is validated when the tenant creates the session.

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def problem_of(url: str) -> str | None:
    """What is wrong with a return_url, or None.

    The URL must use https, or http for localhost, and all browsers must parse it in the same way.
    """
    if len(url) > MAX_RETURN_URL_LENGTH:
        return f"Must be at most {MAX_RETURN_URL_LENGTH} characters."
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
    """The return_url with `session_id` and `status` in its query. Existing parameters with these names are replaced.
    All others stay as the tenant wrote them, because a query may be signed or contain bytes.
    """
    parts = urlsplit(url)
    own = {"session_id": session_id, "status": status}
    written = parts.query.split("&") if parts.query else []
    kept = [pair for pair in written if unquote_plus(pair.partition("=")[0]) not in own]
    return urlunsplit(parts._replace(query="&".join([*kept, urlencode(own)])))


LIFETIME = timedelta(hours=1)
MOST_OPEN = 200
"""The most open sessions of a tenant in one environment."""
FINISHING = timedelta(minutes=3)
"""How long one result may be processed before another is accepted. Six slow calls to Meta take about this time."""

_LINKS = signing.Signer(salt="connect-link", sep=".")
_STATES = signing.Signer(salt="connect-state", sep=".")
_TOKEN = re.compile(r"EAA[A-Za-z0-9]+")


def create(*, tenant_id: UUID, environment: str, return_url: str) -> ConnectSession:
    """Create a session that is open for an hour. The caller has validated `return_url`. Raises RateLimited at the limit
    of open sessions.
    """
    with transaction.atomic():
        # The lock makes simultaneous calls wait, so they cannot exceed the limit together.
        Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant_id)
        waiting = open_sessions(tenant_id=tenant_id, environment=environment)
        if waiting.count() >= MOST_OPEN:
            ends_at = waiting.order_by("expires_at").values_list("expires_at", flat=True).first()
            seconds = math.ceil((ends_at - now()).total_seconds()) if ends_at else 1
            raise RateLimited(
                f"{MOST_OPEN} connect sessions are open, which is the maximum.",
                hint="Create one when your customer is about to connect: it ends after an hour, or once it is used.",
                details={"limit": MOST_OPEN},
                headers={"Retry-After": str(max(1, seconds))},
            )
        return ConnectSession.objects.create(
            tenant_id=tenant_id, environment=environment, return_url=return_url, expires_at=now() + LIFETIME
        )


def open_sessions(*, tenant_id: UUID, environment: str) -> QuerySet[ConnectSession]:
    """The open sessions of a tenant in one environment."""
    return ConnectSession.objects.for_environment(tenant_id, environment).filter(
        status=ConnectSession.Status.OPEN, expires_at__gt=now()
    )


def find(*, tenant_id: UUID, environment: str, session_id: str) -> ConnectSession:
    """The tenant's session with this public id. Raises NotFound."""
    own = ConnectSession.objects.for_environment(tenant_id, environment)
    return by_public_id(own, ids.CONNECT_SESSION, session_id, "connect session")


def url_of(session: ConnectSession) -> str:
    """The hosted link of a session."""
    return f"{settings.APP_URL}/connect/{_LINKS.sign(session.public_id)}"


def by_link(token: str) -> ConnectSession | None:
    """The session of a hosted link. None when no session has the link."""
    return _signed(_LINKS, token)


def state_of(session: ConnectSession) -> str:
    """The state that the page sends with its result. It proves that the page was built for this session."""
    return _STATES.sign(session.public_id)


def is_state_of(session: ConnectSession, state: str) -> bool:
    """Whether a state belongs to this session."""
    stated = _signed(_STATES, state)
    return stated is not None and stated.pk == session.pk


def _signed(signer: signing.Signer, text: str) -> ConnectSession | None:
    try:
        key = ids.decode(ids.CONNECT_SESSION, signer.unsign(text))
    except signing.BadSignature:
        return None
    return ConnectSession.objects.select_related("tenant").filter(pk=key).first() if key else None


def return_address(session: ConnectSession) -> str:
    """The address to open after the session: the return_url with `session_id` and `status`."""
    connected = session.status == ConnectSession.Status.CONNECTED
    return with_result(
        session.return_url, session_id=session.public_id, status="connected" if connected else "failed"
    )


def finish(
    session: ConnectSession, *, code: str, waba_id: str, phone_number_id: str | None
) -> ConnectSession:
    """Finish an open session with the result of the sign-up. Without a number, all numbers of the account are imported.

    A rejection by Meta ends the session as `failed`. When Meta is unreachable or busy, the session stays open and the
    same result may be sent again. Raises Conflict while another result is processed, and MetaUnreachable,
    UpstreamUnreachable or Refused (throttled, or an error on Meta's side). A session that is over is returned
    unchanged.
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
    """End a session as `failed`, because the business left without connecting or the sign-up's dialog reported an
    error. Raises Conflict while another result is processed.
    """
    with _working_on(session) as open_session:
        if open_session is None:
            return ConnectSession.objects.get(pk=session.pk)
        if reason:
            return _fail(session, "meta", "signup_error", reason[:500])
        return _fail(session, settings.SERVICE_NAME, "cancelled", "The customer left without connecting.")


@contextmanager
def _working_on(session: ConnectSession) -> Iterator[ConnectSession | None]:
    """Claim an open session. Yields None when the session is over or expired. Raises Conflict while another result is
    processed.
    """
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
    return _TOKEN.sub("EAA…", str(message or "Meta refused."))[:500]


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
    """Delete sessions that were created more than EVENT_METADATA_DAYS ago. Returns the number of rows."""
    kept_from = ids.first_at(now() - timedelta(days=settings.EVENT_METADATA_DAYS))
    return delete_free(ConnectSession.objects.filter(pk__lt=kept_from))
