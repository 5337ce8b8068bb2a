"""OAuth clients that register themselves, and their connections to tenants. Only this module creates and changes the
rows of clients and connections.

OAuth 2.1 for public clients: a client has no secret. A code is bound to a PKCE verifier (S256), to the client and to
the redirect URI. It works once, within a minute. An access token lasts an hour and is valid for `/mcp` only. A refresh
token works once. A second use of a code or of a refresh token ends the connection, because somebody else may hold the
tokens (RFC 9700, 2.2.2 and 4.14.2).
"""

import base64
import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from hmac import compare_digest
from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from gateway.api import authentication
from gateway.api.authentication import Caller, credential_digest
from gateway.api.errors import Conflict, NotFound
from gateway.clock import now
from gateway.database.partitions import BATCH_ROWS, delete_free
from gateway.roles import Area, KeyScope, Role, known_scopes, may_change, may_read
from tenants import audit
from tenants.credentials import key_cache
from tenants.credentials.bearer_tokens import password_fingerprint, password_fingerprints
from tenants.models import ApiKey, AppConnection, ConnectedAppClient, Tenant, User

SCOPES = (KeyScope.MESSAGES, KeyScope.NUMBERS, KeyScope.TEMPLATES, KeyScope.WEBHOOKS, KeyScope.EVENTS)
"""The scopes that the tools of the MCP server need. All are in `Area.INTEGRATION`."""
CODE_LIFETIME = timedelta(minutes=1)
ACCESS_LIFETIME = timedelta(hours=1)
LIFETIME = timedelta(days=90)
"""Lifetime of a connection. Afterwards the client must ask the member again."""
UNUSED_CLIENT_LIFETIME = timedelta(days=1)
"""How long a client is stored that nobody connects."""
USED_CLIENT_LIFETIME = timedelta(days=365)
"""How long a client is stored after a member last connected it. Clients store their id, and ask a member again with the
same id after a connection has ended.
"""
MOST_CONNECTIONS = 100
"""The maximum number of open connections of a tenant."""
ACCESS_PREFIX, REFRESH_PREFIX = "wbo_", "wbr_"
APP_SCHEMES = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf"})
"""Private-use schemes of known editors. They contain no domain name, although RFC 8252 (7.1) requires one."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class InvalidGrant(Exception):
    """Raised when a code or a refresh token is not valid: OAuth's `invalid_grant`."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A new pair of tokens. One response contains them; only their hashes are stored."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    scopes: list[str]
    lifetime: timedelta
    """How long the access token is valid: until the connection ends, if that is within an hour."""


def register(*, name: str, redirect_uris: list[str], ip: str | None) -> ConnectedAppClient:
    """Store a client that registers itself."""
    return ConnectedAppClient.objects.create(name=name, redirect_uris=redirect_uris, ip=ip)


def is_acceptable(uri: str) -> bool:
    """Whether codes may be sent to a redirect URI: an https address, a program on the member's computer, or the scheme
    of an app.
    """
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not (uri.isascii() and uri.isprintable()) or any(each in uri for each in " #\\<>\"'`;,"):
        return False
    if parts.username is not None or parts.password is not None:
        return False
    if parts.scheme == "https":
        return bool(host)
    if parts.scheme == "http":
        return host in LOOPBACK
    return "." in parts.scheme or parts.scheme in APP_SCHEMES


def destination(uri: str) -> str | None:
    """The host of an https redirect URI. None for a program or an app on the member's own device."""
    parts = urlsplit(uri)
    return parts.hostname if parts.scheme == "https" else None


def find_client(client_id: str) -> ConnectedAppClient | None:
    """The registered client with this id. None when there is no such client."""
    try:
        return ConnectedAppClient.objects.filter(pk=UUID(client_id)).first()
    except ValueError:
        return None


def allow(
    client: ConnectedAppClient,
    *,
    user: User,
    tenant: Tenant,
    redirect_uri: str,
    code_challenge: str,
    environment: str,
    scopes: Collection[KeyScope],
    only_reads: bool,
) -> str:
    """Let a client act for a member. Returns the authorization code.

    Raises Conflict when the tenant is not active or has the maximum number of connections, when the member's role may
    not connect apps, or when the client was deleted in the meantime.
    """
    code = secrets.token_urlsafe(32)
    with transaction.atomic():
        # The lock makes simultaneous calls wait. It also protects the member's role, which changes under the same lock.
        tenant = Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=tenant.pk)
        user = User.objects.get(pk=user.pk)
        if not ConnectedAppClient.objects.filter(pk=client.pk).update(last_connected_at=now()):
            raise Conflict("The app waited too long. Start again in the app.")
        if not may_connect(user, tenant):
            raise Conflict(
                "Apps can be connected by members who may change the integration of an active account."
            )
        if (
            AppConnection.objects.for_tenant(tenant.id).filter(expires_at__gt=now()).count()
            >= MOST_CONNECTIONS
        ):
            raise Conflict(
                f"There are {MOST_CONNECTIONS} connected apps, which is the maximum.",
                hint="Disconnect those that nobody uses.",
                details={"limit": MOST_CONNECTIONS},
            )
        connection = AppConnection.objects.create(
            client=client,
            tenant=tenant,
            user=user,
            password_fingerprint=password_fingerprint(user),
            environment=ApiKey.Environment.TEST if tenant.sandbox else environment,
            scopes=sorted(set(scopes) & set(SCOPES)),
            only_reads=only_reads,
            redirect_uri=redirect_uri,
            code_hash=credential_digest(code),
            code_challenge=code_challenge,
            expires_at=now() + CODE_LIFETIME,
        )
        _record("connected_app.connect", connection, actor_user_id=user.pk)
    return code


def may_connect(user: User, tenant: Tenant) -> bool:
    """Whether a member may connect apps to a tenant. Members who may create keys may also connect apps."""
    return (
        user.is_active
        and user.tenant_id == tenant.id
        and tenant.status == Tenant.Status.ACTIVE
        and may_change(user.role, Area.INTEGRATION)
    )


def redeem_code(*, client_id: str, code: str, redirect_uri: str, verifier: str) -> Tokens:
    """Exchange a code for tokens. Raises InvalidGrant. A second use of a code ends the connection that the first use
    opened.
    """
    with transaction.atomic():
        connection = _locked(code_hash=credential_digest(code))
        if connection is None:
            raise InvalidGrant
        proves = (
            connection.access_hash is None
            and connection.expires_at > now()
            and str(connection.client_id) == client_id
            and connection.redirect_uri == redirect_uri
            and compare_digest(_challenge(verifier), connection.code_challenge)
        )
        if proves and may_connect(connection.user, connection.tenant) and _has_same_password(connection):
            connection.expires_at = now() + LIFETIME
            return _issue(connection, family=secrets.token_urlsafe(16))
        _end(connection, reason="code_refused")
    raise InvalidGrant


def refresh(*, client_id: str, token: str) -> Tokens:
    """Exchange a refresh token for new tokens. Raises InvalidGrant. A second use of a refresh token ends its
    connection.
    """
    family, _, secret = token.removeprefix(REFRESH_PREFIX).partition(".")
    if not token.startswith(REFRESH_PREFIX) or not secret:
        raise InvalidGrant
    with transaction.atomic():
        connection = _locked(family_hash=credential_digest(family))
        if connection is None or str(connection.client_id) != client_id:
            raise InvalidGrant
        is_current = compare_digest(connection.refresh_hash or "", credential_digest(token))
        if is_current and _is_open(connection):
            return _issue(connection, family=family)
        _end(connection, reason="no_longer_allowed" if is_current else "token_used_twice")
    raise InvalidGrant


def revoke_token(*, client_id: str, token: str) -> None:
    """End the connection to which a client's access or refresh token belongs (RFC 7009). Ignores other tokens."""
    family, _, secret = token.removeprefix(REFRESH_PREFIX).partition(".")
    with transaction.atomic():
        connection = (
            _locked(family_hash=credential_digest(family))
            if token.startswith(REFRESH_PREFIX) and secret
            else _locked(access_hash=credential_digest(token))
        )
        if connection is not None and str(connection.client_id) == client_id:
            _end(connection, reason="by_the_app")


def revoke(*, tenant_id: UUID, connection_id: UUID, actor_user_id: int) -> AppConnection:
    """End a connection of a tenant now. Raises NotFound."""
    with transaction.atomic():
        rows = AppConnection.objects.select_for_update(of=("self",)).select_related("client")
        connection = rows.filter(tenant_id=tenant_id, pk=connection_id).first()
        if connection is None:
            raise NotFound("There is no such connected app.")
        _end(connection, reason="by_a_member", actor_user_id=actor_user_id)
    return connection


def caller_for(token: str) -> Caller | None:
    """The caller behind an access token. None when the token is unknown or expired, or when its member may no longer
    read.
    """
    digest = credential_digest(token)
    rows = AppConnection.objects.select_related("user", "tenant")
    connection = rows.filter(access_hash=digest, access_expires_at__gt=now()).first()
    if connection is None or not _is_open(connection):
        authentication.drop_credential(digest)
        return None
    tenant = key_cache.tenant_by_id(connection.tenant_id)
    if tenant is None:
        return None
    authentication.remember_credential(digest)
    return Caller(
        "connected_app",
        "live" if connection.environment == ApiKey.Environment.LIVE else "test",
        tenant=tenant,
        scopes=known_scopes(connection.scopes),
        expires_at=connection.access_expires_at,
        user_id=connection.user_id,
        role=Role.READ_ONLY if connection.only_reads else connection.user.role,
    )


def end_all(rows: QuerySet[AppConnection], *, reason: str, actor_user_id: int | None) -> None:
    """End these connections of one tenant now."""
    with transaction.atomic():
        locked = rows.select_for_update(of=("self",)).select_related("client").order_by("pk")
        _end(*locked, reason=reason, actor_user_id=actor_user_id)


def prune_expired() -> int:
    """End expired connections, and delete clients that nobody has connected for long. Returns the number of rows."""
    with transaction.atomic():
        free = AppConnection.objects.select_for_update(of=("self",), skip_locked=True).select_related(
            "client"
        )
        expired = free.filter(expires_at__lte=now())[:BATCH_ROWS]
        over = _end(*expired, reason="expired")
    unused = ConnectedAppClient.objects.filter(
        Q(last_connected_at=None, created_at__lte=now() - UNUSED_CLIENT_LIFETIME)
        | Q(last_connected_at__lte=now() - USED_CLIENT_LIFETIME),
        connections__isnull=True,
    )
    return over + delete_free(unused)


def _is_open(connection: AppConnection) -> bool:
    """Whether a connection is valid: it has not expired, its member is still in the tenant with a role that may read,
    and the member's password is still the same.
    """
    user = connection.user
    return (
        connection.expires_at > now()
        and user.is_active
        and user.tenant_id == connection.tenant_id
        and may_read(user.role, Area.INTEGRATION)
        and _has_same_password(connection)
    )


def _has_same_password(connection: AppConnection) -> bool:
    return connection.password_fingerprint in password_fingerprints(connection.user)


def _issue(connection: AppConnection, *, family: str) -> Tokens:
    """Issue new tokens to a connection. The previous tokens end."""
    access = ACCESS_PREFIX + secrets.token_urlsafe(32)
    new = f"{REFRESH_PREFIX}{family}.{secrets.token_urlsafe(32)}"
    if connection.access_hash:
        authentication.drop_credential(connection.access_hash)
    connection.access_hash, connection.refresh_hash = credential_digest(access), credential_digest(new)
    connection.family_hash = credential_digest(family)
    # After a rotation of SECRET_KEY, a connection in use needs the former key no longer.
    connection.password_fingerprint = password_fingerprint(connection.user)
    moment = now()
    lifetime = min(ACCESS_LIFETIME, connection.expires_at - moment)
    connection.last_used_at, connection.access_expires_at = moment, moment + lifetime
    connection.save()
    return Tokens(access, new, connection.scopes, lifetime)


def _locked(**known_by: str) -> AppConnection | None:
    rows = AppConnection.objects.select_for_update(of=("self",)).select_related("client", "user", "tenant")
    return rows.filter(**known_by).first()


def _end(*ended: AppConnection, reason: str, actor_user_id: int | None = None) -> int:
    """Delete locked connections, and record their end. Returns their number."""
    for connection in ended:
        _record("connected_app.disconnect", connection, actor_user_id=actor_user_id, reason=reason)
        if connection.access_hash:
            authentication.drop_credential(connection.access_hash)
    AppConnection.objects.filter(pk__in=[connection.pk for connection in ended]).delete()
    return len(ended)


def _record(action: str, connection: AppConnection, *, actor_user_id: int | None, **more: str) -> None:
    audit.record(
        action=action,
        target_type="connected_app",
        target_id=connection.id,
        tenant_id=connection.tenant_id,
        actor_user_id=actor_user_id,
        details={
            "name": connection.client.name,
            "redirect_uri": connection.redirect_uri,
            "environment": connection.environment,
            "scopes": connection.scopes,
            "only_reads": connection.only_reads,
        }
        | more,
    )


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode("ascii", "replace")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
