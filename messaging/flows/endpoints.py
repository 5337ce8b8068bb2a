"""A number's Flow endpoint: the tenant's URL, its signing secret and the key pair. Writes `FlowEndpoint`.

WhatsApp encrypts with the public key that was uploaded last. A new private key is stored before its public key is
uploaded. Until the upload has succeeded, requests are decrypted with either the previous or the new private key. So
requests can be decrypted even if Meta's answer to the upload is lost. Uploads are network calls, so no transaction is
open during one.
"""

from datetime import timedelta
from typing import Any

import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.db import transaction

from gateway.api.errors import NotFound
from gateway.clock import now
from gateway.outbound.addresses import origin_of
from messaging.models import FlowEndpoint
from phone_numbers.models import PhoneNumber
from phone_numbers.tokens import Refused, accepted_for, graph_of
from tenants.audit import Actor, difference
from webhooks.requests.signed_request import new_secret, shown_prefix

log = structlog.get_logger(__name__)

KEY_BITS = 2048
"""The key size that Meta accepts ("WhatsApp Business Encryption", upstream fact 3.15)."""
OVERLAP = timedelta(hours=24)
"""How long the previous secret also signs requests after a rotation."""


def find(number: PhoneNumber, *, locked: bool = False) -> FlowEndpoint:
    """The Flow endpoint of a number. Raises NotFound."""
    rows = FlowEndpoint.objects.filter(number=number).select_related("number")
    endpoint = (rows.select_for_update(of=("self",)) if locked else rows).first()
    if endpoint is None:
        raise NotFound("This number has no Flow endpoint.")
    return endpoint


def set_url(number: PhoneNumber, *, url: str, actor: Actor) -> FlowEndpoint:
    """Set the URL that a number's data requests are forwarded to.

    The first call also creates the secret and the key pair, and uploads the public key. If Meta rejects the key, the
    new endpoint is deleted. Raises Refused and UpstreamUnreachable.
    """
    with transaction.atomic():
        PhoneNumber.objects.select_for_update(no_key=True, of=("self",)).get(pk=number.pk)
        secret = new_secret()
        endpoint, is_new = FlowEndpoint.objects.get_or_create(
            number=number, defaults={"url": url, "secret": secret, "secret_prefix": shown_prefix(secret)}
        )
        former = None if is_new else endpoint.url
        if not is_new:
            endpoint.url = url
            endpoint.save(update_fields=["url"])
        _record("flow_endpoint.set", number, actor, **_moved(former, url))
    if endpoint.key_uploaded_at is not None:
        return endpoint
    try:
        endpoint = upload_new_key(number, actor=actor)
    except Refused:
        FlowEndpoint.objects.filter(pk=endpoint.pk, key_uploaded_at=None).delete()
        raise
    # An earlier call whose upload got no answer has created the secret, but has not shown it.
    endpoint.new_secret = endpoint.secret
    return endpoint


def upload_new_key(number: PhoneNumber, *, actor: Actor) -> FlowEndpoint:
    """Make a key pair and upload its public key. A successful upload deletes the previous private key.

    If an earlier upload did not succeed, this uploads the key of that upload again. Raises NotFound, Refused,
    UpstreamUnreachable.
    """
    fresh = _new_private_key()
    with transaction.atomic():
        endpoint = find(number, locked=True)
        if endpoint.next_private_key is None:
            endpoint.next_private_key = fresh
            endpoint.save(update_fields=["next_private_key"])
    uploaded: str = endpoint.next_private_key
    graph = graph_of(number.account)
    accepted_for(number.account, graph.set_encryption_key(number.phone_number_id, public_key_of(uploaded)))
    with transaction.atomic():
        endpoint = find(number, locked=True)
        if endpoint.next_private_key == uploaded:
            endpoint.private_key, endpoint.next_private_key = uploaded, None
            endpoint.key_uploaded_at = now()
            endpoint.save(update_fields=["private_key", "next_private_key", "key_uploaded_at"])
            _record("flow_endpoint.rotate_key", number, actor)
    return endpoint


def rotate_secret(number: PhoneNumber, *, actor: Actor) -> FlowEndpoint:
    """Set a new signing secret. The previous secret also signs requests for OVERLAP. Raises NotFound."""
    with transaction.atomic():
        endpoint = find(number, locked=True)
        endpoint.previous_secret, endpoint.previous_secret_expires_at = endpoint.secret, now() + OVERLAP
        endpoint.secret = endpoint.new_secret = new_secret()
        endpoint.secret_prefix = shown_prefix(endpoint.secret)
        endpoint.save()
        _record("flow_endpoint.rotate_secret", number, actor)
    return endpoint


def delete(number: PhoneNumber, *, actor: Actor) -> None:
    """Delete the endpoint with its keys. Data requests of the number's Flows fail from then on. Raises NotFound."""
    with transaction.atomic():
        endpoint = find(number, locked=True)
        endpoint.delete()
        _record("flow_endpoint.delete", number, actor, **_moved(endpoint.url, None))


def public_key_of(private_key: str) -> str:
    """The public key of a private key, in PEM."""
    loaded = serialization.load_pem_private_key(private_key.encode(), password=None)
    return (
        loaded.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def _new_private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _moved(former: str | None, url: str | None) -> dict[str, Any]:
    return difference({"url": former and origin_of(former)}, {"url": url and origin_of(url)})


def _record(action: str, number: PhoneNumber, actor: Actor, **details: Any) -> None:
    actor.record(
        action,
        tenant_id=number.tenant_id,
        target_type="number",
        target_id=number.phone_number_id,
        **details,
    )
