"""Callers behind bearer tokens: an API key is found by the key cache, a console token in the database."""

from uuid import UUID

from gateway.api.authentication import NOT_A_KEY, BearerTokens, Caller, Environment, TenantFacts
from gateway.api.errors import Unauthorized
from gateway.clock import isoformat, now
from tenants.credentials import api_keys, console_sessions, key_cache
from tenants.models import ApiKey

_NEW_KEY = (
    "Make a new key: in the console, with another key by POST /v1/api-keys, or ask the platform's staff."
)


def caller_for(token: str, chosen_tenant: str | None) -> Caller | None:
    """The caller behind a token, or None when the token is unknown, expired or revoked (specification 5).

    Tenant keys, platform keys with X-Service-Tenant (`chosen_tenant`), console tokens.
    """
    if token.startswith(console_sessions.TOKEN_PREFIX):
        return console_sessions.caller_for(token)
    if not api_keys.looks_like_key(token):
        return None
    facts = key_cache.key_by_hash(api_keys.hash_of(token))
    if facts is None or not facts.usable:
        return None
    api_keys.note_used(facts.id)
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
    )


def recalled_caller_for(token: str) -> Caller | None:
    """`caller_for` of a tenant's key that this process remembers; None when it takes a look-up. Does no I/O."""
    recalled = key_cache.recall(api_keys.hash_of(token))
    if recalled is None:
        return None
    facts, tenant = recalled
    if not facts.usable:
        return None
    api_keys.note_used(facts.id)
    return _tenant_caller(token, facts, tenant)


def _tenant_caller(token: str, facts: key_cache.KeyFacts, tenant: TenantFacts) -> Caller:
    return Caller(
        "tenant_key", _environment(facts), tenant=tenant, key_id=facts.id, key_prefix=_prefix(token)
    )


def _environment(facts: key_cache.KeyFacts) -> Environment:
    return "test" if facts.environment == "test" else "live"


def _prefix(key: str) -> str:
    return key[: api_keys.PREFIX_CHARACTERS]


class BearerAuthentication(BearerTokens):
    """REST framework's door to `caller_for`."""

    def caller_for(self, token: str, chosen_tenant: str | None) -> Caller | None:
        # First what is remembered: a key in use is then read again beside its calls, together with others.
        return recalled_caller_for(token) or caller_for(token, chosen_tenant)

    def refusal(self, token: str) -> Unauthorized:
        return refusal(token)


def refusal(token: str) -> Unauthorized:
    """Why `caller_for` found nobody, for the one who holds the whole token. Asks the database."""
    if token.startswith(console_sessions.TOKEN_PREFIX):
        return Unauthorized(
            "This console token is unknown or has ended.",
            hint="A token lives 12 hours and ends with a change of the password: POST /v1/console/sessions.",
        )
    if not api_keys.looks_like_key(token):
        return Unauthorized(NOT_A_KEY)
    key = ApiKey.objects.filter(key_hash=api_keys.hash_of(token)).first()
    if key is None:
        return Unauthorized(
            "This API key is unknown.",
            hint="Copy the whole key, and check which installation it was made at.",
        )
    if key.revoked_at is not None:
        return Unauthorized(f"This API key was revoked at {isoformat(key.revoked_at)}.", hint=_NEW_KEY)
    if key.expires_at is not None and key.expires_at <= now():
        return Unauthorized(f"This API key expired at {isoformat(key.expires_at)}.", hint=_NEW_KEY)
    return Unauthorized()


def _may_act_on(key: key_cache.KeyFacts, tenant: TenantFacts) -> bool:
    """A platform key acts on its app's tenants; a test key on the sandbox tenants among them."""
    return tenant.app_id == key.app_id and (tenant.sandbox or key.environment == "live")


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
