"""Connected apps for tests: a registered client, its code, and its tokens."""

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.test import Client

from gateway.roles import KeyScope
from tenants.connected_apps import connections
from tenants.connected_apps.connections import Tokens
from tenants.models import AppConnection, ConnectedAppClient, Tenant, User

REDIRECT_URI = "https://assistant.example/callback"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


def client_of(redirect_uri: str = REDIRECT_URI) -> ConnectedAppClient:
    return connections.register(name="Assistant", redirect_uris=[redirect_uri], ip="192.0.2.1")


def member_of(tenant: Tenant, role: str = "developer") -> User:
    email = f"{role}-{User.objects.count()}@members.example"
    return User.objects.create_user(email, "a long enough password", tenant=tenant, role=role)


def code_of(client: ConnectedAppClient, user: User, **chosen: Any) -> str:
    """The code that a client gets after a member's consent."""
    assert user.tenant is not None
    values = {"environment": "test", "scopes": connections.SCOPES, "only_reads": False, **chosen}
    return connections.allow(
        client,
        user=user,
        tenant=user.tenant,
        redirect_uri=client.redirect_uris[0],
        code_challenge=CHALLENGE,
        **values,
    )


def tokens_of(user: User, client: ConnectedAppClient | None = None, **chosen: Any) -> Tokens:
    """Connect an app for a member. Returns the tokens of the connection."""
    client = client or client_of()
    return connections.redeem_code(
        client_id=str(client.id),
        code=code_of(client, user, **chosen),
        redirect_uri=client.redirect_uris[0],
        verifier=VERIFIER,
    )


def connection_of(tenant: Tenant) -> AppConnection:
    """A working connection of a tenant."""
    tenant.status, former = Tenant.Status.ACTIVE, tenant.status
    tenant.save(update_fields=["status"])
    tokens_of(member_of(tenant))
    tenant.status = former
    tenant.save(update_fields=["status"])
    return AppConnection.objects.for_tenant(tenant.id).latest("id")


def asked(client: ConnectedAppClient, **changed: str) -> dict[str, str]:
    """The parameters in the URL to which a client sends a member."""
    return {
        "client_id": str(client.id),
        "redirect_uri": client.redirect_uris[0],
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s&1",
        "scope": " ".join((KeyScope.MESSAGES, KeyScope.EVENTS, KeyScope.KEYS, "offline_access")),
    } | changed


def answer_to(address: str) -> dict[str, str]:
    """The parameters that a redirect URI receives."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def post(path: str, **form: str) -> Any:
    return Client(raise_request_exception=False).post(path, form)
