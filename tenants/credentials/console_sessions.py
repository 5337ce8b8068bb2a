"""Console tokens: `wbc_` and 43 characters, 12 hours, stored hashed, ended by a password change.

Staff tokens open `/v1/admin/*`; a tenant user's token works as a live key of that tenant (decision
"Authentication").
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta

from gateway.api.authentication import Caller
from gateway.clock import now
from tenants.credentials import key_cache
from tenants.models import ConsoleSession, User

TOKEN_PREFIX = "wbc_"
LIFETIME = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session's row together with its token, which is shown once."""

    row: ConsoleSession
    token: str


def open_session(user: User) -> NewSession:
    """A new console token for a person whose identity was checked."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = ConsoleSession.objects.create(
        user=user,
        token_hash=_hash(token),
        password_fingerprint=_fingerprint(user),
        expires_at=now() + LIFETIME,
    )
    return NewSession(row, token)


def session_for(token: str) -> ConsoleSession | None:
    """The live session behind a token: known, not over, of an active person with the same password."""
    session = (
        ConsoleSession.objects.select_related("user")
        .filter(token_hash=_hash(token), expires_at__gt=now(), user__is_active=True)
        .first()
    )
    if session is None or session.password_fingerprint != _fingerprint(session.user):
        return None
    return session


def caller_for(token: str) -> Caller | None:
    """The caller behind a console token; a person who is neither staff nor of a tenant has no access."""
    session = session_for(token)
    if session is None:
        return None
    user = session.user
    if user.is_staff:
        return Caller("staff", "live", user_id=user.pk)
    tenant = key_cache.tenant_by_id(user.tenant_id) if user.tenant_id else None
    if tenant is None:
        return None
    return Caller("console_user", "live", tenant=tenant, user_id=user.pk, role=user.role)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _fingerprint(user: User) -> str:
    return hashlib.sha256(user.get_session_auth_hash().encode()).hexdigest()
