"""Connect sessions: a hosted link on which a tenant's customer connects an account by embedded sign-up.

The API makes and shows them; the hosted page (`pages.py`) finishes them through the same onboarding as
`POST /v1/numbers/embedded-signup`. A session ends once: `connected` or `failed`; open ones expire after an hour. The
link carries the session's id under a signature, so it can be shown again and cannot be guessed.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core import signing
from django.db.models import Q

from gateway import ids
from gateway.api.errors import Conflict, MetaUnreachable, NotFound, ServiceError
from gateway.clock import now
from gateway.database.pruning import delete_free
from gateway.upstream.calls import UpstreamUnreachable
from phone_numbers import onboarding
from phone_numbers.graph_calls import Refused
from phone_numbers.hosted_connect.return_urls import with_result
from phone_numbers.models import ConnectSession, PhoneNumber
from tenants.actors import Actor

LIFETIME = timedelta(hours=1)
FINISHING = timedelta(minutes=3)
"""How long one answer may be worked on, six calls of the upstream at their slowest, before another may begin."""

_LINKS = signing.Signer(salt="connect-link", sep=".")
_STATES = signing.Signer(salt="connect-state", sep=".")
_TOKEN = re.compile(r"EAA[A-Za-z0-9]+")


def create(*, tenant_id: UUID, environment: str, return_url: str) -> ConnectSession:
    """A new open session of one hour; `return_url` has been checked."""
    return ConnectSession.objects.create(
        tenant_id=tenant_id, environment=environment, return_url=return_url, expires_at=now() + LIFETIME
    )


def find(*, tenant_id: UUID, environment: str, session_id: str) -> ConnectSession:
    """The tenant's session by its public id. Raises NotFound."""
    own = ConnectSession.objects.for_tenant(tenant_id).filter(environment=environment)
    key = ids.decode(ids.CONNECT_SESSION, session_id)
    session = own.filter(pk=key).first() if key else None
    if session is None:
        raise NotFound("There is no such connect session.")
    return session


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
    """Where the customer goes when it is over: the return_url with `session_id` and `status`, nothing else."""
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


def forget_old() -> int:
    """Forget sessions made more than EVENT_METADATA_DAYS ago. Returns how many."""
    kept_from = ids.first_at(now() - timedelta(days=settings.EVENT_METADATA_DAYS))
    return delete_free(ConnectSession.objects.filter(pk__lt=kept_from))
