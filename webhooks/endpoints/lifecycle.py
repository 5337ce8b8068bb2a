"""A tenant's webhook endpoints: create, change, verify, rotate the secret, delete, disable. Writes `Endpoint`.

The verify ping runs between transactions, never inside one. Its result is stored only if the endpoint has not changed
since the ping (decision "Webhooks to customers").
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.dispatch import Signal

from gateway.api.errors import Conflict, InvalidRequest, NotFound
from gateway.clock import now
from gateway.outbound.addresses import origin_of
from tenants import checklist
from tenants.audit import GATEWAY, Actor, difference
from tenants.models import ApiKey
from webhooks import open_deliveries, wake_up
from webhooks.endpoints import notices
from webhooks.endpoints.circuit_breaker import is_outdated
from webhooks.events import filters
from webhooks.models import Endpoint
from webhooks.requests import credentials, signed_request, verify_ping
from webhooks.requests.credentials import MASK
from webhooks.requests.signed_request import new_secret, shown_prefix
from webhooks.requests.verify_ping import Ping

MOST_ENDPOINTS = 20
"""The maximum number of endpoints of a tenant in each environment."""

MOST_IDS = 500
"""The maximum number of accounts to which an endpoint can be limited. The same maximum applies to numbers."""
MOST_METADATA, LONGEST_METADATA_NAME, LONGEST_METADATA_TEXT = 50, 40, 500
"""Limits of an endpoint's metadata: members, characters of a name, and characters of a text."""
LONGEST_TIMEOUT_SECONDS = 30
HIGHEST_RATE = 1_000
"""The highest rate limit of an endpoint, in requests a second."""
HIGHEST_THRESHOLD = 1_000_000
"""The highest threshold of given-up deliveries for an endpoint's mail."""
LONGEST_WAIT_MILLISECONDS, LONGEST_QUIET_SECONDS = 1_000, 60
"""The longest time that a request may wait for more events, and the longest time that a customer's messages may be
collected.
"""
MOST_RETRY_STEPS, LONGEST_RETRY_STEP, LONGEST_RETRY_SCHEDULE = 19, 86_400, 604_800
"""Limits of a retry schedule: the number of steps, the seconds of one step, and the seconds of all steps. Within
these limits, the attempt log shows every attempt.
"""

CREDENTIALS = frozenset({"tls", "oauth2", "asymmetric_signature", "destination"})
"""Members of the API that are stored together in one encrypted column."""
OF_WEBHOOKS = frozenset(
    {"url", "format", "verify_token", "headers", "tls", "oauth2", "batch", "quiet_seconds"}
)
"""Members of the API that only endpoints over HTTPS have."""
NOT_OF_ARCHIVES = OF_WEBHOOKS | {"ordered", "rate_per_second"}
"""Members that archives do not have. Archives collect events in their own way."""
SETTABLE_OF_INBOX = frozenset({"description", "metadata", "status"})

ACTIVE, PAUSED, DISABLED = Endpoint.Status.ACTIVE, Endpoint.Status.PAUSED, Endpoint.Status.DISABLED

endpoints_changed = Signal()
"""Sent with `tenant_id` and `environment`, in the transaction of the change."""


def find(*, tenant_id: UUID, environment: str, endpoint_id: UUID) -> Endpoint:
    """Return a tenant's endpoint in one environment. Raises NotFound."""
    return _found(Endpoint.objects.for_environment(tenant_id, environment).filter(pk=endpoint_id).first())


def _locked(*, tenant_id: UUID, environment: str, endpoint_id: UUID) -> Endpoint:
    """Like `find`, but locks the row until the transaction ends."""
    rows = Endpoint.objects.for_environment(tenant_id, environment).select_for_update(of=("self",))
    return _found(rows.filter(pk=endpoint_id).first())


def _found(endpoint: Endpoint | None) -> Endpoint:
    if endpoint is None:
        raise NotFound("There is no such webhook endpoint.")
    return endpoint


def create(
    *,
    tenant_id: UUID,
    environment: str,
    actor: Actor,
    secret: str | None = None,
    status: str = ACTIVE,
    **given: Any,
) -> Endpoint:
    """Create an endpoint with the caller's secret or a random one. A ping verifies the endpoint, unless `status` is
    pending.

    `given` has members of the API: settings, the `kind` and the `format`. An inbox needs no ping, and is verified from
    its creation on.

    Raises Conflict for a second inbox, and when the environment already has 20 endpoints. Raises WebhookVerifyFailed
    when the ping fails. The endpoint then exists and stays pending. The error's details have the endpoint's id and
    secret.
    """
    secret = secret or new_secret()
    _require_format(given.get("format", Endpoint.Format.ENVELOPE), given, is_new=True)
    given = _as_stored(given, None)
    _require_batches(Endpoint(**given))
    is_inbox = given.get("kind") == Endpoint.Kind.INBOX
    if is_inbox:
        given |= {"url": _inbox_url(), "event_types": [], "status": ACTIVE, "verified_at": now()}
    with _uid_of_its_own(), transaction.atomic():
        _wait_for_turn(tenant_id)
        if Endpoint.objects.for_environment(tenant_id, environment).count() >= MOST_ENDPOINTS:
            raise Conflict(
                f"There are {MOST_ENDPOINTS} webhook endpoints, which is the maximum.",
                hint="Delete an endpoint that you no longer need.",
                details={"limit": MOST_ENDPOINTS},
            )
        if is_inbox and find_inbox(tenant_id=tenant_id, environment=environment) is not None:
            raise Conflict("Conversations are on already: an environment has one inbox.")
        endpoint = Endpoint.objects.create(
            tenant_id=tenant_id,
            environment=environment,
            secret=secret,
            secret_prefix=shown_prefix(secret),
            **given,
        )
        _audit("webhook_endpoint.create", endpoint, difference({}, _recorded(endpoint)), actor)
        if is_inbox:
            _notify(endpoint)
    if is_inbox or status == Endpoint.Status.PENDING:
        return endpoint
    try:
        verify(endpoint)
    except verify_ping.WebhookVerifyFailed as error:
        error.details = {**(error.details or {}), "secret": secret}
        raise
    return endpoint


def _wait_for_turn(tenant_id: UUID) -> None:
    """Wait until no other transaction creates an endpoint of the tenant.

    This does not lock the tenant's row: a change of an endpoint locks the endpoint before that row, so a creation with
    the same uid and the change could wait for each other.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"endpoints:{tenant_id}"])


def verify(endpoint: Endpoint) -> Ping:
    """Ping an endpoint. Success stores `verified_at`, closes the circuit, and makes the endpoint active unless it is
    paused.

    A failed ping raises WebhookVerifyFailed and changes nothing: an active endpoint stays active. A pause or a 410
    during the ping stays in force. Raises Conflict for an inbox, and for an endpoint that was deleted or got another
    url.
    """
    require_webhook(endpoint)
    answer = verify_ping.passed(endpoint)
    with transaction.atomic():
        rows = Endpoint.objects.select_for_update(of=("self",))
        current = rows.filter(pk=endpoint.id, url=endpoint.url).first()
        if current is None:
            raise Conflict("The endpoint was changed or deleted while it was being verified.")
        current.verified_at = now()
        if _standing(current) == _standing(endpoint) and current.status != PAUSED:
            _activate(current)
        _save(current)
    for field in ("verified_at", "status", "disabled_at", "consecutive_failures"):
        setattr(endpoint, field, getattr(current, field))
    return answer


def change(
    *,
    tenant_id: UUID,
    environment: str,
    endpoint_id: UUID,
    changes: dict[str, Any],
    actor: Actor,
) -> Endpoint:
    """Change an endpoint. A change of the url, the verify token, the TLS or the OAuth2 settings needs a ping that
    passes. So does `active` for an endpoint that has not yet passed a ping.

    Raises NotFound, InvalidRequest for values that the endpoint cannot have, and WebhookVerifyFailed when the ping
    fails. Raises Conflict when another change during the ping excludes this change. After an error nothing is changed.
    """
    seen = find(tenant_id=tenant_id, environment=environment, endpoint_id=endpoint_id)
    if not changes.keys() <= SETTABLE_OF_INBOX:
        require_webhook(seen)
    if changes.pop("format", seen.format) != seen.format:
        raise InvalidRequest.of(format="The format of an endpoint cannot change: create another endpoint.")
    _require_format(seen.format, changes)
    if seen.kind != Endpoint.Kind.INBOX and (problem := members_problem(seen.kind, set(changes))):
        raise InvalidRequest.of(**problem)
    status = changes.get("status")
    as_wanted = copy(seen)
    _set(as_wanted, changes)
    _require_batches(as_wanted)
    url = as_wanted.url
    is_pinged = (
        url != seen.url
        or "verify_token" in changes
        or credentials.connection(as_wanted) != credentials.connection(seen)
        or (status == ACTIVE and not _is_verified(seen))
    )
    if is_pinged:
        verify_ping.passed(as_wanted, again=verify_ping.CHANGE)
    with _uid_of_its_own(), transaction.atomic():
        endpoint = _locked(tenant_id=tenant_id, environment=environment, endpoint_id=endpoint_id)
        is_as_seen = _standing(endpoint) == _standing(seen)
        former = _recorded(endpoint)
        _set(endpoint, changes)
        if changes.keys() & {"headers", *CREDENTIALS} and endpoint.secret_unreadable_since is not None:
            # The new credentials may be readable where the former ones were not. The next claim tries to read them.
            endpoint.secret_unreadable_since = endpoint.circuit_open_until = None
            wake_up.after_commit()
        if is_pinged:
            if endpoint.url != url:
                raise Conflict("The endpoint's url changed while it was being verified.")
            endpoint.verified_at = now()
        if status == PAUSED:
            endpoint.status = PAUSED
        elif status == ACTIVE:
            if not (is_as_seen if is_pinged else _is_verified(endpoint)):
                raise Conflict("The endpoint's status changed meanwhile: send the request again.")
            _activate(endpoint)
        elif is_pinged and is_as_seen and endpoint.status != PAUSED:
            _activate(endpoint)
        details = {"changed": sorted(changes), **difference(former, _recorded(endpoint))}
        _audit("webhook_endpoint.update", endpoint, details, actor)
        _save(endpoint)
    return endpoint


def resume(*, tenant_id: UUID, environment: str, endpoint_id: UUID, actor: Actor) -> Endpoint:
    """Close an endpoint's circuit and end a pause. Waiting deliveries are sent at once, at the endpoint's rate.

    Raises Conflict for an endpoint that must pass a ping first.
    """
    with transaction.atomic():
        endpoint = _locked(tenant_id=tenant_id, environment=environment, endpoint_id=endpoint_id)
        if not _is_verified(endpoint):
            raise Conflict(f"The endpoint is {endpoint.status}: verify it first.")
        _activate(endpoint)
        _audit("webhook_endpoint.resume", endpoint, {}, actor)
        _save(endpoint)
    return endpoint


def rotate_secret(
    *,
    tenant_id: UUID,
    environment: str,
    endpoint_id: UUID,
    overlap_hours: int,
    actor: Actor,
    secret: str | None = None,
) -> Endpoint:
    """Set a new signing secret, the caller's or a random one. The previous secret also signs for `overlap_hours`.

    Only the newest two secrets sign: a rotation during an overlap drops the oldest. An unreadable secret cannot sign,
    so it has no overlap, and deliveries that were put off because of it are due again.
    """
    with transaction.atomic():
        endpoint = _locked(tenant_id=tenant_id, environment=environment, endpoint_id=endpoint_id)
        require_webhook(endpoint)
        is_readable = signed_request.is_readable(endpoint)
        overlaps = overlap_hours > 0 and is_readable
        endpoint.previous_secret = endpoint.secret if overlaps else None
        endpoint.previous_secret_expires_at = now() + timedelta(hours=overlap_hours) if overlaps else None
        endpoint.secret = secret or new_secret()
        endpoint.secret_prefix = shown_prefix(endpoint.secret)
        if not is_readable:
            endpoint.secret_unreadable_since = endpoint.circuit_open_until = None
            wake_up.after_commit()
        endpoint.save()
        _audit("webhook_endpoint.rotate_secret", endpoint, {"overlap_hours": overlap_hours}, actor)
    return endpoint


def delete(
    *, tenant_id: UUID, environment: str, endpoint_id: UUID, actor: Actor, only_pending: bool = False
) -> None:
    """Delete an endpoint. The dispatcher marks its waiting deliveries dead (`endpoint_deleted`).

    With `only_pending`, an endpoint that has passed a ping meanwhile, or was paused, stays. Raises NotFound.
    """
    with transaction.atomic():
        endpoint = _locked(tenant_id=tenant_id, environment=environment, endpoint_id=endpoint_id)
        if only_pending and endpoint.status != Endpoint.Status.PENDING:
            return
        _audit("webhook_endpoint.delete", endpoint, difference(_recorded(endpoint), {}), actor)
        endpoint.delete()
        _notify(endpoint)
        wake_up.after_commit()


def disable(*, endpoint_id: UUID, reason: str, generation: int) -> None:
    """Disable an endpoint that is gone (410) or has failed for days. Runs inside the caller's transaction.

    `generation` is the generation of the endpoint's circuit when this was found. No effect if the endpoint was made
    active since then.
    """
    endpoint = Endpoint.objects.select_for_update(of=("self",)).filter(pk=endpoint_id).first()
    if endpoint is None or endpoint.status != ACTIVE:
        return
    if is_outdated(generation, generation=endpoint.circuit_generation, opened=endpoint.circuit_opened):
        return
    endpoint.status = DISABLED
    endpoint.disabled_at = now()
    endpoint.save(update_fields=["status", "disabled_at"])
    _audit("webhook_endpoint.disable", endpoint, {"reason": reason}, GATEWAY)
    notices.disabled(endpoint, cause=reason)
    _notify(endpoint)


@contextmanager
def _uid_of_its_own() -> Iterator[None]:
    """If `uid` is not unique, raise InvalidRequest for that field."""
    try:
        yield
    except IntegrityError as error:
        if "endpoint_once_per_uid" in str(error):
            raise InvalidRequest.of(uid="Another endpoint has this uid already.") from None
        raise


def _set(endpoint: Endpoint, changes: dict[str, Any]) -> None:
    """Assign the values of a change to an endpoint, except its status."""
    for column, value in _as_stored(changes, endpoint).items():
        if column != "status":
            setattr(endpoint, column, value)


def _as_stored(given: dict[str, Any], endpoint: Endpoint | None) -> dict[str, Any]:
    """Convert the caller's values to values of columns. Raises InvalidRequest."""
    if endpoint is not None and "url" in given and origin_of(given["url"]) != origin_of(endpoint.url):
        _require_secrets_again(given, endpoint)
    if "headers" in given:
        given = _with_headers(given, endpoint)
    if given.keys() & CREDENTIALS:
        former = credentials.readable(endpoint) if endpoint is not None else credentials.NONE
        found = credentials.changed(former, given, endpoint.kind if endpoint else given.get("kind", ""))
        given = {
            **{name: value for name, value in given.items() if name not in CREDENTIALS},
            "credentials": credentials.packed(found),
            **({"url": credentials.address(found.destination)} if "destination" in given else {}),
        }
    if "batch" in given:
        batch = given["batch"] or {}
        columns = {f"batch_{name}": batch.get(name) for name in ("events", "milliseconds")}
        given = {**{name: value for name, value in given.items() if name != "batch"}, **columns}
    if steps := given.get("retry_schedule"):
        given = {**given, "retry_schedule": " ".join(map(str, steps))}
    if "filter" in given:
        path = None if given["filter"] is None else filters.checked(given["filter"])
        given = {**given, "filter_path": path}
    return given


def _require_secrets_again(given: dict[str, Any], endpoint: Endpoint) -> None:
    """Raise InvalidRequest if a new host would get stored secrets, which the caller may not know."""
    stored = {
        "headers": signed_request.header_names(endpoint),
        "oauth2": credentials.readable(endpoint).oauth2,
        "verify_token": endpoint.format == Endpoint.Format.META,
    }
    if kept := [name for name, found in stored.items() if found and _keeps(given.get(name, MASK))]:
        problem = "Give it again: a `url` with another scheme, host or port does not get the stored one."
        raise InvalidRequest.of(**dict.fromkeys(kept, problem))


def _keeps(value: Any) -> bool:
    return value == MASK or (isinstance(value, dict) and MASK in value.values())


def _with_headers(given: dict[str, Any], endpoint: Endpoint | None) -> dict[str, Any]:
    """The values, with `headers` converted to its column's value. Raises InvalidRequest."""
    if not given["headers"]:
        return {**given, "headers": None}
    stored = None
    with suppress(InvalidToken):
        stored = endpoint.headers if endpoint is not None else None
    try:
        headers = signed_request.merged_headers(given["headers"], stored)
    except KeyError as error:
        raise InvalidRequest.of(
            headers=f"No value of `{error.args[0]}` is stored, so the mask has nothing to keep."
        ) from None
    if problem := signed_request.headers_problem(headers):
        raise InvalidRequest.of(headers=problem)
    return {**given, "headers": signed_request.packed_headers(headers)}


def _require_format(format_: str, given: dict[str, Any], *, is_new: bool = False) -> None:
    """Raise InvalidRequest for a verify token that the format does not have, or for a missing one that it needs."""
    if format_ != Endpoint.Format.META and given.get("verify_token") is not None:
        raise InvalidRequest.of(verify_token="Only endpoints with `format: meta` have one.")
    if format_ == Endpoint.Format.META and not given.get("verify_token", not is_new):
        raise InvalidRequest.of(verify_token="Required: the handshake shows it to the receiver.")


def _require_batches(endpoint: Endpoint) -> None:
    """Raise InvalidRequest if another setting contradicts batches or collected events."""
    batches, collects = endpoint.batch_events is not None, endpoint.quiet_seconds is not None
    problems = {}
    if collects and not endpoint.ordered:
        problems["quiet_seconds"] = (
            "Needs `ordered`, because a customer's events are collected in their order."
        )
    if collects and endpoint.rate_per_second is not None:
        problems["rate_per_second"] = (
            "Cannot be combined with `quiet_seconds`, which sends several events at once."
        )
    if batches and endpoint.ordered:
        problems["batch"] = "Cannot be combined with `ordered`, which sends one event after another."
    if (batches or collects) and endpoint.format == Endpoint.Format.META:
        problems["format"] = "With `format: meta`, each request has one event."
    if problems:
        raise InvalidRequest.of(**problems)


def members_problem(kind: str, given: AbstractSet[str]) -> dict[str, str]:
    """Error messages for the members that an endpoint of this kind cannot have, by member."""
    if kind == Endpoint.Kind.INBOX:
        return dict.fromkeys(sorted(given - {"kind", "description", "metadata"}), "An inbox has none.")
    if kind == Endpoint.Kind.WEBHOOK:
        return {"destination": "An endpoint of kind `webhook` has none."} if "destination" in given else {}
    foreign = NOT_OF_ARCHIVES if kind == Endpoint.Kind.S3 else OF_WEBHOOKS
    return dict.fromkeys(sorted(given & foreign), f"An endpoint of kind `{kind}` has none.")


def _is_verified(endpoint: Endpoint) -> bool:
    """Whether the endpoint may become active without another ping. A pause does not replace the ping that a disabled
    endpoint needs.
    """
    if endpoint.verified_at is None or endpoint.status == DISABLED:
        return False
    return endpoint.disabled_at is None or endpoint.disabled_at < endpoint.verified_at


def _standing(endpoint: Endpoint) -> tuple[str, datetime | None]:
    """The columns that must not change during a ping. Otherwise the ping does not make the endpoint active."""
    return endpoint.status, endpoint.disabled_at


def _activate(endpoint: Endpoint) -> None:
    """Make the endpoint active with a closed circuit. Its waiting deliveries are sent at once."""
    endpoint.status = ACTIVE
    endpoint.consecutive_failures = 0
    endpoint.failing_since = None
    endpoint.circuit_open_until = None
    endpoint.circuit_opened = 0
    endpoint.circuit_generation += 1
    endpoint.disabled_at = None
    open_deliveries.hurry(endpoint.tenant_id, endpoint.id)
    wake_up.after_commit()


def _save(endpoint: Endpoint) -> None:
    endpoint.save()
    _notify(endpoint)


def _notify(endpoint: Endpoint) -> None:
    """In the change's transaction, signal that the endpoint changed, and update the checklist."""
    endpoints_changed.send(Endpoint, tenant_id=endpoint.tenant_id, environment=endpoint.environment)
    own = ApiKey.Environment.TEST if endpoint.tenant.sandbox else ApiKey.Environment.LIVE
    done = has_verified(tenant_id=endpoint.tenant_id, environment=own)
    checklist.mark(tenant_id=endpoint.tenant_id, step="webhook_verified", done=done)


def find_inbox(*, tenant_id: UUID, environment: str) -> Endpoint | None:
    """The inbox of a tenant in an environment. None while conversations are off."""
    rows = Endpoint.objects.for_environment(tenant_id, environment)
    return rows.filter(kind=Endpoint.Kind.INBOX).first()


def require_webhook(endpoint: Endpoint) -> None:
    """Raise Conflict for an inbox, which has no URL to call, no secret and no deliveries to replay."""
    if endpoint.kind == Endpoint.Kind.INBOX:
        raise Conflict("An inbox reads the event log: it has no URL of yours, no secret and no deliveries.")


def _inbox_url() -> str:
    return f"{settings.APP_URL}/console/conversations"


def has_verified(*, tenant_id: UUID, environment: str, besides: Endpoint | None = None) -> bool:
    """Whether a tenant has an active, verified endpoint in the environment, other than `besides`."""
    rows = Endpoint.objects.for_environment(tenant_id, environment)
    if besides is not None:
        rows = rows.exclude(pk=besides.pk)
    return rows.filter(status=ACTIVE, verified_at__isnull=False).exists()


def _recorded(endpoint: Endpoint) -> dict[str, Any]:
    """What the audit log shows of an endpoint: above all, the hosts that get its events and its client secret."""
    found = credentials.readable(endpoint)
    addresses = {
        "url": endpoint.url,
        "endpoint_url": getattr(found.destination, "endpoint_url", None),
        "token_url": found.oauth2 and found.oauth2.token_url,
    }
    return {
        **{name: origin_of(address) if address else None for name, address in addresses.items()},
        "status": endpoint.status,
        "event_types": list(endpoint.event_types),
    }


def _audit(action: str, endpoint: Endpoint, details: dict[str, Any], actor: Actor) -> None:
    actor.record(
        action,
        tenant_id=endpoint.tenant_id,
        target_type="webhook_endpoint",
        target_id=str(endpoint.id),
        **details,
    )
