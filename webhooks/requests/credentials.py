"""Credentials of an endpoint's requests besides its headers: a client certificate, a private CA, OAuth2 tokens, and the
key pair of its asymmetric signature.

All these credentials are encrypted at rest in one column. Private keys and client secrets are never shown again.
Answers have a mask in their place, and a caller who sends the mask keeps the stored value. A secret that is sent as it
is must be given again when the address that gets it changes. Otherwise a caller could have it sent to an address of
their own, and so read it.

OAuth2 means the client-credentials grant (RFC 6749, 4.4). The address guard also checks the token URL. A dispatcher
keeps a token until shortly before its expiry, or until the endpoint answers 401.
"""

import asyncio
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Unpack
from urllib.parse import quote_plus, urlencode, urlsplit
from uuid import UUID

import orjson
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from gateway.api.errors import InvalidRequest
from gateway.http1 import new_tls_context
from gateway.monitoring.logs import type_alone
from gateway.outbound.client import TOTAL_TIMEOUT, Answer, Limits, Outbound, once
from webhooks.destinations.interface import Message
from webhooks.destinations.kinds import KINDS, Connections, kind_of
from webhooks.models import MAX_URL_LENGTH, Endpoint

MASK = "***"
SECRET_MEMBERS: Mapping[str, str | None] = {
    "client_key": None,
    "client_secret": "token_url",
    "secret_access_key": None,
    "sasl_password": "bootstrap_servers",
    "password": "url",
}
"""Each secret with the member that names the address which gets the secret itself. None for a key that only signs."""
LONGEST_PEM = 10_000
TOKEN_SECONDS, LONGEST_TOKEN_SECONDS, EARLY_SECONDS = 300.0, 3_600.0, 30.0
"""Lifetime of a token in seconds: the default without `expires_in`, the maximum, and how early a token is replaced."""
LONGEST_TOKEN = 8_192
MOST_TOKENS = 10_000
"""The maximum number of tokens that a dispatcher keeps."""
PUBLIC_PREFIX = "whpk_"


class Tls(NamedTuple):
    """PEM texts: the client's certificate chain, its key, and the CAs that sign the endpoint's certificate."""

    client_certificate: str | None = None
    client_key: str | None = None
    ca: str | None = None

    def __repr__(self) -> str:
        return type_alone(self)


class OAuth2(NamedTuple):
    """A client at the receiver's authorisation server."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str | None = None

    def __repr__(self) -> str:
        return type_alone(self)


@dataclass(frozen=True)
class Credentials:
    """The credentials of an endpoint's requests."""

    tls: Tls | None = field(default=None, repr=False)
    oauth2: OAuth2 | None = field(default=None, repr=False)
    seed: bytes | None = field(default=None, repr=False)
    """The seed of an Ed25519 key. The key signs in addition to the secret."""
    destination: Any = field(default=None, repr=False)
    """The settings of one of `KINDS`, for an endpoint that is not a webhook."""

    @cached_property
    def signing_key(self) -> Ed25519PrivateKey | None:
        """The key that signs in addition to the secret. None for an endpoint without such a key."""
        return Ed25519PrivateKey.from_private_bytes(self.seed) if self.seed else None

    @property
    def public_key(self) -> str | None:
        """The asymmetric signature's public key in the form of Standard Webhooks 1.0: `whpk_` and base64. None
        without a key.
        """
        key = self.signing_key
        return PUBLIC_PREFIX + b64encode(key.public_key().public_bytes_raw()).decode() if key else None


NONE = Credentials()


def packed(credentials: Credentials) -> str | None:
    """Serialise the credentials for their column. None when there are none."""
    if credentials == NONE:
        return None
    return orjson.dumps(
        {
            "tls": credentials.tls._asdict() if credentials.tls else None,
            "oauth2": credentials.oauth2._asdict() if credentials.oauth2 else None,
            "seed": credentials.seed.hex() if credentials.seed else None,
            **({"destination": _packed_destination(to)} if (to := credentials.destination) else {}),
        }
    ).decode()


def _packed_destination(settings: Any) -> dict[str, Any]:
    return {"kind": kind_of(settings), **settings._asdict()}


def unpacked(stored: str | None) -> Credentials:
    """Parse the column's text."""
    if not stored:
        return NONE
    found: dict[str, Any] = orjson.loads(stored)
    to: dict[str, Any] | None = found.get("destination")
    return Credentials(
        Tls(**found["tls"]) if found["tls"] else None,
        OAuth2(**found["oauth2"]) if found["oauth2"] else None,
        bytes.fromhex(found["seed"]) if found["seed"] else None,
        KINDS[to.pop("kind")].SETTINGS(**to) if to else None,
    )


def readable(endpoint: Endpoint) -> Credentials:
    """An endpoint's credentials. Empty if no key decrypts them."""
    try:
        return unpacked(endpoint.credentials)
    except InvalidToken:
        return NONE


def connection(endpoint: Endpoint) -> tuple[Any, ...]:
    """The settings that decide how to reach the receiver. A change of them requires a ping that passes."""
    found = readable(endpoint)
    return found.tls, found.oauth2, found.destination


def shown(group: Any) -> dict[str, str | None] | None:
    """The members of a group of settings in the API's form, with masked secrets. None without a group."""
    if group is None:
        return None
    return {
        name: MASK if name in SECRET_MEMBERS and value else value for name, value in group._asdict().items()
    }


def changed(stored: Credentials, given: Mapping[str, Any], kind: str) -> Credentials:
    """The credentials of an endpoint after a change of `tls`, `oauth2`, `asymmetric_signature` or `destination`.

    Raises InvalidRequest.
    """
    tls, oauth2, seed, to = stored.tls, stored.oauth2, stored.seed, stored.destination
    if "tls" in given:
        tls = Tls(**_unmasked("tls", given["tls"], tls)) if given["tls"] is not None else None
        if tls is not None and (problem := _problem(tls)):
            raise InvalidRequest.of(tls=problem)
    if "oauth2" in given:
        oauth2 = OAuth2(**_unmasked("oauth2", given["oauth2"], oauth2)) if given["oauth2"] else None
    if "asymmetric_signature" in given:
        seed = (seed or os.urandom(32)) if given["asymmetric_signature"] else None
    if "destination" in given:
        to = _destination(kind, _unmasked("destination", given["destination"], to))
    elif kind in KINDS and to is None:
        # Without a destination, the endpoint would be a webhook at the destination's address.
        raise InvalidRequest.of(destination="Give it again: the stored settings cannot be read.")
    return Credentials(tls, oauth2, seed, to)


def _destination(kind: str, given: dict[str, Any]) -> Any:
    """Parse and check the settings of a destination. Raises InvalidRequest."""
    destination = KINDS[kind]
    members = destination.SETTINGS._fields
    required = [name for name in members if name not in destination.SETTINGS._field_defaults]
    problem = None
    if foreign := given.keys() - set(members):
        problem = f"A destination `{kind}` has no `{min(foreign)}`."
    elif missing := [name for name in required if not given.get(name)]:
        problem = f"A destination `{kind}` needs `{missing[0]}`."
    elif not destination.has_client():
        problem = (
            f"This service has no client for `{kind}`: it is installed with requirements-destinations.txt."
        )
    if problem is None:
        found = destination.SETTINGS(**{name: value for name, value in given.items() if value is not None})
        problem = destination.problem(found) or _address_problem(found)
    if problem is not None:
        raise InvalidRequest.of(destination=problem)
    return found


def _address_problem(destination: Any) -> str | None:
    """Why an endpoint cannot have the address in these settings. None if it can."""
    try:
        shown = address(destination)
        is_usable = bool(urlsplit(shown).netloc) and len(shown) <= MAX_URL_LENGTH
    except ValueError:
        is_usable = False
    return None if is_usable else "Its address is not a host, or is too long."


def address(destination: Any) -> str:
    """The address of a destination, from its settings."""
    return KINDS[kind_of(destination)].address(destination)


def _unmasked(member: str, given: Mapping[str, Any], stored: Any) -> dict[str, Any]:
    """The caller's values, with each mask replaced by the stored value.

    Raises InvalidRequest for the mask of a secret that would go to another address than before.
    """
    former = stored._asdict() if stored else {}
    masked = [name for name, value in given.items() if value == MASK]
    for name in masked:
        if not former.get(name):
            raise InvalidRequest.of(**{member: f"No `{name}` is stored, so the mask has nothing to keep."})
    wanted = {**given, **{name: former[name] for name in masked}}
    for name in masked:
        if (to := SECRET_MEMBERS.get(name)) and wanted.get(to) != former[to]:
            raise InvalidRequest.of(
                **{member: f"Give `{name}` again: a new `{to}` does not get the stored one."}
            )
    return wanted


def _problem(tls: Tls) -> str | None:
    """Why these TLS settings cannot be used. None if they can."""
    if not any(tls):
        return "Give a `client_certificate` with its `client_key`, a `ca`, or both."
    if (tls.client_certificate is None) != (tls.client_key is None):
        return "`client_certificate` and `client_key` go together."
    try:
        tls_context(tls)
    except (ssl.SSLError, ValueError):
        return "Not PEM, or the key is encrypted or does not belong to the certificate."
    return None


@lru_cache(maxsize=256)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """The TLS context of an endpoint. With a `ca`, no other CA is trusted. Raises SSLError and ValueError."""
    context = new_tls_context(trusted=tls.ca)
    if tls.client_certificate and tls.client_key:
        # OpenSSL reads the certificate and the key only from files. This file is in memory, never on a disk.
        with closing(os.fdopen(os.memfd_create("client"), "w")) as file:
            file.write(f"{tls.client_certificate}\n{tls.client_key}\n")
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=_no_password)
    return context


def _no_password() -> str:
    """Reject an encrypted key. Without this callback, OpenSSL would ask for a password at the terminal."""
    raise ValueError("The key is encrypted.")


# --- Requests with credentials.
@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    until: float


class EndpointCaller:
    """Calls endpoints over the connections of one event loop. Caches OAuth2 tokens. Concurrent calls share one
    request for a token.
    """

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._tokens: dict[tuple[UUID, OAuth2], _Token] = {}
        self._fetching: dict[tuple[UUID, OAuth2], asyncio.Task[_Token | None]] = {}
        self._connections = Connections(outbound)

    async def aclose(self) -> None:
        """Close the open destinations."""
        await self._connections.aclose()

    async def call(
        self,
        endpoint_id: UUID,
        credentials: Credentials,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        order_key: str | None = None,
        **limits: Unpack[Limits],
    ) -> Answer:
        """POST to an endpoint, or GET without a body. The answer's error is `token_error` if no token was issued.

        The time-out covers everything, including the token request. A destination gets the body and the headers as a
        message. Messages with the same `order_key` stay in order.
        """
        if credentials.destination is not None and body is not None:
            message = Message(body, headers, order_key, limits.get("total_timeout", TOTAL_TIMEOUT))
            return await self._connections.send(endpoint_id, credentials.destination, message)
        method = "GET" if body is None else "POST"
        if credentials.tls is None and credentials.oauth2 is None:
            return await self._outbound.request(method, url, body, headers, **limits)
        began = time.monotonic()
        if credentials.tls is not None:
            try:
                # Runs in a thread, because creating the context takes tens of milliseconds. The context is then cached.
                limits["tls"] = await asyncio.to_thread(tls_context, credentials.tls)
            except (ssl.SSLError, ValueError):
                return Answer(None, "tls_error", 0, b"", None)
        if credentials.oauth2 is None:
            return await self._outbound.request(method, url, body, headers, **limits)
        key = (endpoint_id, credentials.oauth2)
        total = limits.get("total_timeout", TOTAL_TIMEOUT)
        token = await self._token(key, total)
        spent = time.monotonic() - began
        if token is None:
            return Answer(None, "token_error", round(spent * 1000), b"", None)
        limits["total_timeout"] = total - spent
        others = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        authorised = {**others, "Authorization": f"Bearer {token}"}
        answer = await self._outbound.request(method, url, body, authorised, **limits)
        if answer.status == 401:
            self._tokens.pop(key, None)
        return answer

    async def _token(self, key: tuple[UUID, OAuth2], seconds: float) -> str | None:
        kept = self._tokens.get(key)
        if kept is None or kept.until <= time.monotonic():
            if (fetching := self._fetching.get(key)) is None:
                fetching = asyncio.create_task(_fetched(self._outbound, key[1], seconds))
                self._fetching[key] = fetching
                fetching.add_done_callback(lambda _: self._fetching.pop(key, None))
            # A caller that stops waiting must not cancel the request for other callers.
            kept = await asyncio.shield(fetching)
            if kept is not None:
                if len(self._tokens) >= MOST_TOKENS:
                    self._tokens.clear()
                self._tokens[key] = kept
        return kept.text if kept else None


async def _fetched(outbound: Outbound, client: OAuth2, seconds: float) -> _Token | None:
    """Request a token. None if the authorisation server issued none in time."""
    # RFC 6749, 2.3.1: id and secret are form-encoded before they are joined.
    basic = b64encode(f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}".encode()).decode()
    asked = {"grant_type": "client_credentials", **({"scope": client.scope} if client.scope else {})}
    answer = await outbound.post(
        client.token_url,
        urlencode(asked).encode(),
        {
            "Authorization": f"Basic {basic}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
        total_timeout=seconds,
    )
    try:
        found = orjson.loads(answer.body) if answer.ok else {}
        token, lasts = found["access_token"], float(found.get("expires_in") or TOKEN_SECONDS)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if (
        not isinstance(token, str)
        or not token.isascii()
        or not token.isprintable()
        or len(token) > LONGEST_TOKEN
    ):
        return None
    return _Token(token, time.monotonic() + min(lasts, LONGEST_TOKEN_SECONDS) - EARLY_SECONDS)


def call_once(
    endpoint_id: UUID,
    credentials: Credentials,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    **limits: Unpack[Limits],
) -> Answer:
    """Like `EndpointCaller.call`, for synchronous callers. Uses a new token and new connections."""

    async def call(outbound: Outbound) -> Answer:
        async with aclosing(EndpointCaller(outbound)) as caller:
            return await caller.call(endpoint_id, credentials, url, body, headers, **limits)

    return once(call, settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS)
