"""Callers behind bearer tokens: API keys from the key cache, console tokens from the database.

A console token is `wbc_` and 43 characters. It lasts 12 hours and ends when the password changes. Only its hash is
stored. Tokens of staff with a role open `/v1/admin/*`. A member's token works like a live key of the tenant (decision
"Authentication").
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db.models.functions import Now

from gateway.api import authentication
from gateway.api.authentication import NOT_A_KEY, BearerTokens, Caller, Environment, TenantFacts
from gateway.api.errors import Unauthorized
from gateway.clock import isoformat, now
from gateway.database.partitions import delete_free
from tenants.credentials import api_keys, key_cache
from tenants.models import ApiKey, ConsoleSession, User

TOKEN_PREFIX = "wbc_"
LIFETIME = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session's row and its token. The token is shown only once."""

    row: ConsoleSession
    token: str = field(repr=False)


def open_session(user: User) -> NewSession:
    """Create a console token for a user whose identity was checked."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = ConsoleSession.objects.create(
        user=user,
        token_hash=_hash(token),
        password_fingerprint=password_fingerprint(user),
        expires_at=now() + LIFETIME,
    )
    return NewSession(row, token)


def close_session(session: ConsoleSession) -> None:
    """End a session. Its token is invalid from now on."""
    session.delete()
    authentication.drop_credential(session.token_hash)


def close_sessions(user: User) -> None:
    """End all sessions of a user whose rights as staff changed: a token of staff needs a second factor."""
    for session in ConsoleSession.objects.filter(user=user):
        close_session(session)


def prune_expired() -> int:
    """Delete expired console tokens. Returns how many. By the clock of the database, because a token still works at
    other hosts if only the clock of this one is fast.
    """
    return delete_free(ConsoleSession.objects.filter(expires_at__lt=Now()))


def session_for(token: str) -> ConsoleSession | None:
    """The session of a token. None when the session is unknown or expired, the user is inactive, or the password has
    changed.
    """
    session = (
        ConsoleSession.objects.select_related("user")
        .filter(token_hash=_hash(token), expires_at__gt=now(), user__is_active=True)
        .first()
    )
    if session is None or session.password_fingerprint != password_fingerprint(session.user):
        authentication.drop_credential(_hash(token))
        return None
    authentication.remember_credential(_hash(token))
    return session


def console_caller_for(token: str) -> Caller | None:
    """The caller behind a console token. None for an invalid token, and for a user who is neither staff nor in a
    tenant.
    """
    session = session_for(token)
    if session is None:
        return None
    user = session.user
    if user.is_staff:
        # Every role of staff has this permission.
        return Caller("staff", "live", user_id=user.pk, has_staff_role=user.has_perm("tenants.view_tenant"))
    tenant = key_cache.tenant_by_id(user.tenant_id) if user.tenant_id else None
    if tenant is None:
        return None
    return Caller("console_user", "live", tenant=tenant, user_id=user.pk, role=user.role)


def _hash(token: str) -> str:
    return authentication.credential_digest(token)


def password_fingerprint(user: User) -> str:
    """A hash that changes with the password. Sessions and connections store it, so they end when the
    password changes.
    """
    return _fingerprint(user.get_session_auth_hash())


def password_fingerprints(user: User) -> list[str]:
    """The hashes of `password_fingerprint` with SECRET_KEY and with each of SECRET_KEY_FALLBACKS."""
    return [password_fingerprint(user), *map(_fingerprint, user.get_session_auth_fallback_hash())]


def _fingerprint(auth_hash: str) -> str:
    return hashlib.sha256(auth_hash.encode()).hexdigest()


_NEW_KEY = (
    "Make a new key in the console, or with another key and POST /v1/api-keys, or ask the platform's staff."
)


def caller_for(token: str, chosen_tenant: str | None) -> Caller | None:
    """The caller behind a token, or None when the token is unknown, expired or revoked (specification 5).

    Accepts keys of tenants, keys of platforms with X-Service-Tenant (`chosen_tenant`), and console tokens.
    """
    if token.startswith(TOKEN_PREFIX):
        return console_caller_for(token)
    if not api_keys.looks_like_key(token):
        return None
    facts = key_cache.key_by_hash(api_keys.hash_of(token))
    if facts is None or not facts.usable:
        return None
    api_keys.record_use(facts.id)
    if facts.tenant_id is not None:
        tenant = key_cache.tenant_by_id(facts.tenant_id)
        return _tenant_caller(token, facts, tenant) if tenant else None
    chosen = _uuid(chosen_tenant)
    tenant = key_cache.tenant_by_id(chosen) if chosen else None
    if tenant is not None and not _may_act_on(facts, tenant):
        tenant = None
    return Caller(
        "app_key",
        _environment(facts),
        tenant=tenant,
        app_id=facts.app_id,
        key_id=facts.id,
        key_prefix=_prefix(token),
        scopes=facts.scopes,
        expires_at=facts.expires_at,
    )


def recalled_caller_for(token: str) -> Caller | None:
    """The caller behind a tenant's key, from this process's cache. None when a look-up is needed, and for a key that is
    not usable. Does no I/O.
    """
    recalled = key_cache.recall(api_keys.hash_of(token))
    if recalled is None:
        return None
    facts, tenant = recalled
    if not facts.usable:
        return None
    api_keys.record_use(facts.id)
    return _tenant_caller(token, facts, tenant)


def _tenant_caller(token: str, facts: key_cache.KeyFacts, tenant: TenantFacts) -> Caller:
    return Caller(
        "tenant_key",
        _environment(facts),
        tenant=tenant,
        key_id=facts.id,
        key_prefix=_prefix(token),
        scopes=facts.scopes,
        phone_number_ids=facts.phone_number_ids,
        expires_at=facts.expires_at,
    )


def _environment(facts: key_cache.KeyFacts) -> Environment:
    return "test" if facts.environment == "test" else "live"


def _prefix(key: str) -> str:
    return key[: api_keys.PREFIX_CHARACTERS]


class BearerAuthentication(BearerTokens):
    """Authenticates a request to REST framework with `caller_for`."""

    def caller_for(self, token: str, chosen_tenant: str | None) -> Caller | None:
        # The process cache is asked first. A background thread refreshes keys in use, many in one statement.
        return recalled_caller_for(token) or caller_for(token, chosen_tenant)

    def refusal(self, token: str) -> Unauthorized:
        return refusal(token)


def refusal(token: str) -> Unauthorized:
    """The error for a token for which `caller_for` returned None. The error states the reason, because a caller who has
    the full token may know the reason. For a key, this reads the database.
    """
    if token.startswith(TOKEN_PREFIX):
        return Unauthorized(
            "This console token is unknown or has expired.",
            hint="A token lasts 12 hours and ends when the password changes. Get a new one: POST /v1/console/sessions.",
        )
    if not api_keys.looks_like_key(token):
        if api_keys.contains_key(token):
            return Unauthorized(
                "There is more than the key after the word Bearer.",
                hint="Send the key alone: without quotes, brackets or a second Bearer.",
            )
        return Unauthorized(NOT_A_KEY)
    key_hash = api_keys.hash_of(token)
    key = None if key_cache.is_absent(key_hash) else ApiKey.objects.filter(key_hash=key_hash).first()
    if key is None:
        return Unauthorized(
            "This API key is unknown.",
            hint="Copy the whole key, and check which installation it belongs to.",
        )
    if key.revoked_at is not None:
        return Unauthorized(f"This API key was revoked at {isoformat(key.revoked_at)}.", hint=_NEW_KEY)
    if key.expires_at is not None and key.expires_at <= now():
        return Unauthorized(f"This API key expired at {isoformat(key.expires_at)}.", hint=_NEW_KEY)
    return Unauthorized()


def _may_act_on(key: key_cache.KeyFacts, tenant: TenantFacts) -> bool:
    """Whether a platform key may act on a tenant. The tenant must belong to the key's app. For a test key, the tenant
    must also be a sandbox tenant.
    """
    return tenant.app_id == key.app_id and (tenant.sandbox or key.environment == "live")


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
