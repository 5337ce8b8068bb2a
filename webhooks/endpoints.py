"""A tenant's webhook endpoints: create, change, verify, rotate the secret, delete, disable. Writes `Endpoint`.

The verify ping is made between transactions, never inside one; its result is stored only if the address that was
pinged is still the endpoint's (decision "Webhooks to customers").
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import transaction

from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest, NotFound, WebhookVerifyFailed
from gateway.clock import now
from gateway.outbound.client import Answer, post_once
from tenants import audit, checklist, mail
from tenants.models import Tenant
from webhooks import signals
from webhooks.delivery import signed_request, wake_up
from webhooks.delivery.signing import new_secret, shown_prefix
from webhooks.models import Endpoint

MOST_ENDPOINTS = 20
PING_TYPE = "webhook.verify"
EXCERPT_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Ping:
    """How an endpoint answered the verify ping."""

    passed: bool
    http_status: int | None
    response_ms: int
    error: str | None
    body_excerpt: str


def find(*, tenant_id: UUID, endpoint_id: UUID) -> Endpoint:
    """A tenant's endpoint. Raises NotFound for another's."""
    endpoint = Endpoint.objects.for_tenant(tenant_id).filter(pk=endpoint_id).first()
    if endpoint is None:
        raise NotFound("There is no such webhook endpoint.")
    return endpoint


def create(*, tenant_id: UUID, url: str, description: str, event_types: list[str]) -> Endpoint:
    """A new endpoint, verified by a ping.

    Raises InvalidRequest when the tenant has 20 already, WebhookVerifyFailed (with the id and the secret in its
    details) when the ping fails: the endpoint exists then and stays pending.
    """
    secret = new_secret()
    with transaction.atomic():
        Tenant.objects.select_for_update(of=("self",)).get(pk=tenant_id)
        if Endpoint.objects.for_tenant(tenant_id).count() >= MOST_ENDPOINTS:
            raise InvalidRequest(f"A tenant has at most {MOST_ENDPOINTS} webhook endpoints.")
        endpoint = Endpoint.objects.create(
            tenant_id=tenant_id,
            url=url,
            description=description,
            event_types=event_types,
            secret=secret,
            secret_prefix=shown_prefix(secret),
        )
        _audit("webhook_endpoint.create", endpoint, {"event_types": event_types})
    try:
        verify(endpoint)
    except WebhookVerifyFailed as error:
        error.details = {**(error.details or {}), "secret": secret}
        raise
    return endpoint


def verify(endpoint: Endpoint, *, then: str = Endpoint.Status.ACTIVE) -> Ping:
    """Ping an endpoint; a pass stores `verified_at` and the status `then`, a failure raises WebhookVerifyFailed.

    A failed ping changes nothing: an endpoint that was active stays so.
    """
    answer = ping(endpoint)
    if not answer.passed:
        raise _verify_failed(endpoint, answer)
    with transaction.atomic():
        current = (
            Endpoint.objects.select_for_update(of=("self",)).filter(pk=endpoint.id, url=endpoint.url).first()
        )
        if current is None:
            raise Conflict("The endpoint was changed or deleted while it was being verified.")
        current.verified_at = now()
        _activate(current, then)
        current.save()
        signals.endpoints_changed.send(Endpoint, tenant_id=current.tenant_id)
        _mark_checklist(current.tenant_id)
    for field in ("verified_at", "status", "disabled_at", "consecutive_failures"):
        setattr(endpoint, field, getattr(current, field))
    return answer


def _verify_failed(endpoint: Endpoint, answer: Ping) -> WebhookVerifyFailed:
    return WebhookVerifyFailed(
        details={
            "endpoint_id": endpoint.id,
            "http_status": answer.http_status,
            "error": answer.error,
            "body_excerpt": answer.body_excerpt,
        }
    )


def ping(endpoint: Endpoint) -> Ping:
    """POST a signed challenge; a pass is a 2xx that carries it as plain text or as JSON, within 5 seconds."""
    challenge = secrets.token_urlsafe(24)
    body = orjson.dumps({"type": PING_TYPE, "challenge": challenge})
    answer = post_once(
        endpoint.url,
        body,
        signed_request.headers(
            keys=signed_request.target_of(endpoint, at=now()).keys,
            message_id=ids.encode("ping_", ids.uuid7()),
            timestamp=int(now().timestamp()),
            body=body,
            event_type=PING_TYPE,
        ),
        allow_private=settings.WEBHOOK_ALLOW_PRIVATE_NETWORKS,
        total_timeout=settings.WEBHOOK_VERIFY_TIMEOUT_MS / 1000,
    )
    passed = answer.ok and _carries(answer, challenge)
    return Ping(
        passed,
        answer.status,
        answer.ms,
        answer.error or (None if passed else "wrong_answer"),
        answer.body.decode("utf-8", "replace")[:EXCERPT_CHARACTERS],
    )


def change(*, tenant_id: UUID, endpoint_id: UUID, changes: dict[str, Any]) -> Endpoint:
    """Change an endpoint. A new url is pinged first and taken only when it passes; so is `active` without a pass.

    Raises WebhookVerifyFailed with nothing changed, NotFound for another tenant's endpoint.
    """
    endpoint = find(tenant_id=tenant_id, endpoint_id=endpoint_id)
    wanted = changes.get("status", endpoint.status)
    new_url = changes.get("url", endpoint.url) != endpoint.url
    unverified = endpoint.verified_at is None or endpoint.status == Endpoint.Status.DISABLED
    must_ping = new_url or (wanted == Endpoint.Status.ACTIVE and unverified)
    if must_ping:
        before, endpoint.url = endpoint.url, changes.get("url", endpoint.url)
        answer = ping(endpoint)
        endpoint.url = before
        if not answer.passed:
            raise _verify_failed(endpoint, answer)
    with transaction.atomic():
        current = (
            Endpoint.objects.for_tenant(tenant_id)
            .select_for_update(of=("self",))
            .filter(pk=endpoint_id)
            .first()
        )
        if current is None:
            raise NotFound("There is no such webhook endpoint.")
        for field in ("url", "description", "event_types"):
            if field in changes:
                setattr(current, field, changes[field])
        if must_ping:
            current.verified_at = now()
            if "status" not in changes and current.status != Endpoint.Status.PAUSED:
                wanted = Endpoint.Status.ACTIVE
        if wanted == Endpoint.Status.ACTIVE and current.verified_at is None:
            raise Conflict("The endpoint is not verified.")
        _activate(current, wanted)
        current.save()
        _audit("webhook_endpoint.update", current, {"changed": sorted(changes)})
        signals.endpoints_changed.send(Endpoint, tenant_id=tenant_id)
        _mark_checklist(tenant_id)
    return current


def rotate_secret(*, tenant_id: UUID, endpoint_id: UUID, overlap_hours: int) -> Endpoint:
    """A new signing secret; the one before signs beside it for `overlap_hours`, not at all for 0.

    During an overlap the newest two sign: what was the previous one before is dropped. A secret that cannot be read
    cannot sign: then there is no overlap, and the deliveries that were put off are due again.
    """
    with transaction.atomic():
        endpoint = (
            Endpoint.objects.for_tenant(tenant_id)
            .select_for_update(of=("self",))
            .filter(pk=endpoint_id)
            .first()
        )
        if endpoint is None:
            raise NotFound("There is no such webhook endpoint.")
        is_readable = signed_request.is_readable(endpoint)
        overlaps = overlap_hours > 0 and is_readable
        endpoint.previous_secret = endpoint.secret if overlaps else None
        endpoint.previous_secret_expires_at = now() + timedelta(hours=overlap_hours) if overlaps else None
        endpoint.secret = new_secret()
        endpoint.secret_prefix = shown_prefix(endpoint.secret)
        if not is_readable:
            endpoint.secret_unreadable_since = endpoint.circuit_open_until = None
            wake_up.after_commit()
        endpoint.save()
        _audit("webhook_endpoint.rotate_secret", endpoint, {"overlap_hours": overlap_hours})
    return endpoint


def delete(*, tenant_id: UUID, endpoint_id: UUID) -> None:
    """Delete an endpoint; the dispatcher marks what was waiting for it dead (`endpoint_deleted`)."""
    with transaction.atomic():
        endpoint = (
            Endpoint.objects.for_tenant(tenant_id)
            .select_for_update(of=("self",))
            .filter(pk=endpoint_id)
            .first()
        )
        if endpoint is None:
            raise NotFound("There is no such webhook endpoint.")
        _audit("webhook_endpoint.delete", endpoint, {})
        endpoint.delete()
        signals.endpoints_changed.send(Endpoint, tenant_id=tenant_id)
        _mark_checklist(tenant_id)
        wake_up.after_commit()


def disable(*, endpoint_id: UUID, reason: str) -> None:
    """Stop attempts at an endpoint that is gone (410) or failing for days; inside the caller's transaction."""
    endpoint = Endpoint.objects.select_for_update(of=("self",)).filter(pk=endpoint_id).first()
    if endpoint is None or endpoint.status != Endpoint.Status.ACTIVE:
        return
    endpoint.status = Endpoint.Status.DISABLED
    endpoint.disabled_at = now()
    endpoint.save(update_fields=["status", "disabled_at"])
    _audit("webhook_endpoint.disable", endpoint, {"reason": reason})
    mail.send_to_tenant(
        tenant=endpoint.tenant, template="endpoint_disabled", context={"endpoint": endpoint, "reason": reason}
    )
    signals.endpoints_changed.send(Endpoint, tenant_id=endpoint.tenant_id)
    _mark_checklist(endpoint.tenant_id)


def _activate(endpoint: Endpoint, status: str) -> None:
    """Set a status; becoming active starts with a closed circuit, and what was waiting goes on."""
    if status == Endpoint.Status.ACTIVE and endpoint.status != Endpoint.Status.ACTIVE:
        endpoint.consecutive_failures = 0
        endpoint.failing_since = None
        endpoint.circuit_open_until = None
        endpoint.circuit_opened = 0
        endpoint.disabled_at = None
        wake_up.after_commit()
    endpoint.status = status


def _carries(answer: Answer, challenge: str) -> bool:
    if answer.body.strip() == challenge.encode():
        return True
    try:
        value = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and value.get("challenge") == challenge


def _mark_checklist(tenant_id: UUID) -> None:
    verified = (
        Endpoint.objects.for_tenant(tenant_id)
        .filter(status=Endpoint.Status.ACTIVE, verified_at__isnull=False)
        .exists()
    )
    checklist.mark(tenant_id=tenant_id, step="webhook_verified", done=verified)


def _audit(action: str, endpoint: Endpoint, details: dict[str, Any]) -> None:
    audit.record(
        action=action,
        target_type="webhook_endpoint",
        target_id=endpoint.id,
        tenant_id=endpoint.tenant_id,
        details=details,
    )
