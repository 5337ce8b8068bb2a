"""Which caller stands behind a bearer token: an API key by the mirror, a console token by the database."""

from uuid import UUID

from django.http import HttpRequest

from gateway.api.authentication import TENANT_HEADER, BearerTokens, Caller, Environment, TenantFacts
from tenants import api_keys, console_sessions, key_cache


class BearerAuthentication(BearerTokens):
    """Section 5 of the specification: tenant keys, platform keys with X-Service-Tenant, console tokens."""

    def caller_for(self, token: str, request: HttpRequest) -> Caller | None:
        if token.startswith(console_sessions.TOKEN_PREFIX):
            return console_sessions.caller_for(token)
        if not api_keys.looks_like_key(token):
            return None
        facts = key_cache.key_by_hash(api_keys.hash_of(token))
        if facts is None or not facts.usable:
            return None
        api_keys.note_used(facts.id)
        environment: Environment = "test" if facts.environment == "test" else "live"
        if facts.tenant_id is not None:
            tenant = key_cache.tenant_by_id(facts.tenant_id)
            return Caller("tenant_key", environment, tenant=tenant, key_id=facts.id) if tenant else None
        chosen = _chosen_tenant(request)
        tenant = key_cache.tenant_by_id(chosen) if chosen else None
        if tenant is not None and not _may_act_on(facts, tenant):
            tenant = None
        return Caller("app_key", environment, tenant=tenant, app_id=facts.app_id, key_id=facts.id)


def _may_act_on(key: key_cache.KeyFacts, tenant: TenantFacts) -> bool:
    """A platform key acts on its app's tenants; a test key on the sandbox tenants among them."""
    return tenant.app_id == key.app_id and (tenant.sandbox or key.environment == "live")


def _chosen_tenant(request: HttpRequest) -> UUID | None:
    try:
        return UUID(request.headers.get(TENANT_HEADER, ""))
    except ValueError:
        return None
