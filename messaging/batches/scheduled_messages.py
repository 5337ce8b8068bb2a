"""Scheduled messages, for callers: schedule, find, change, cancel.

One transaction makes the checks that a send makes before its upstream call, stores the message, and stores the answer
for the idempotency key. The batch runner sends the message at its time (`messaging/batches/scheduled_sender.py`).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.dateparse import parse_datetime

from gateway import ids
from gateway.api.errors import Conflict, InvalidRequest, RateLimited, Reply, ServiceError
from gateway.api.json import dumps
from gateway.api.query import by_public_id
from gateway.clock import now
from gateway.database.statements import run
from messaging import idempotency
from messaging.batches.serializers import ScheduledOut
from messaging.models import ScheduledMessage
from messaging.sending import customer_hours, flow, outbound
from messaging.sending.customer_hours import CustomerHours
from messaging.sending.flow import SendRequest
from phone_numbers.senders_and_owners import Sender
from tenants.models import Tenant

MEMBER = outbound.SEND_AT
MEMBERS = (MEMBER, customer_hours.MEMBER)
MOST_AHEAD = timedelta(days=90)
MOST_SCHEDULED = 10_000
"""How many messages of a tenant in one environment may wait for their time. More can be sent as batches."""
FULL_RETRY_SECONDS = 60

Status = ScheduledMessage.Status


def moment_of(value: Any) -> datetime:
    """Parse the `send_at` of a body: ISO 8601 with an offset, in the next 90 days. Raises InvalidRequest."""
    try:
        moment = parse_datetime(value) if isinstance(value, str) else None
        if moment is None or moment.tzinfo is None:
            raise ValueError
        ahead = moment - now()
    except (ValueError, OverflowError):
        raise _invalid(
            "Must be an ISO 8601 date-time with an offset, such as 2026-12-01T09:00:00+05:30."
        ) from None
    if ahead <= timedelta(0):
        raise _invalid("Must be in the future.")
    if ahead > MOST_AHEAD:
        raise _invalid(f"Must be at most {MOST_AHEAD.days} days ahead.")
    return moment


def _invalid(problem: str) -> InvalidRequest:
    return InvalidRequest.of(**{MEMBER: problem})


def create(request: SendRequest) -> Reply:
    """Store a message for a later time. Returns a 202, which is also stored for an idempotency key.

    Makes the checks that a send makes before its upstream call. After a ServiceError nothing was stored.
    """
    use = request.key_use()
    message = {name: value for name, value in request.body.items() if name not in MEMBERS}
    with transaction.atomic():
        opened = run(flow.opening(replace(request, body=message), use))
        if isinstance(opened, ServiceError):
            raise opened
        if isinstance(opened, Reply):
            return opened
        hours = _hours(request.body)
        send_at = request.body.get(MEMBER)
        moment = now() if hours is not None and send_at is None else moment_of(send_at)
        stored = _store(opened, request, message, moment, hours)
        reply = Reply(202, {"Content-Type": "application/json"}, dumps(ScheduledOut(stored).data))
        if use is not None:
            run(idempotency.completing(use, reply))
    return reply


def _store(
    number: Sender,
    request: SendRequest,
    message: dict[str, Any],
    send_at: datetime,
    hours: CustomerHours | None,
) -> ScheduledMessage:
    """Store a message if the limit allows it. Locks the tenant's row, so that concurrent requests take turns."""
    Tenant.objects.select_for_update(no_key=True, of=("self",)).get(pk=request.tenant_id)
    own = ScheduledMessage.objects.for_environment(request.tenant_id, number.environment)
    if own.filter(status=Status.SCHEDULED).count() >= MOST_SCHEDULED:
        raise RateLimited(
            f"{MOST_SCHEDULED:,} scheduled messages are waiting for their time, which is the maximum.",
            hint="Send messages of one time as a batch with `send_at`, or cancel some: GET /v1/messages/scheduled.",
            details={"limit": MOST_SCHEDULED},
            headers={"Retry-After": str(FULL_RETRY_SECONDS)},
        )
    return ScheduledMessage.objects.create(
        tenant_id=request.tenant_id,
        environment=number.environment,
        phone_number_id=number.phone_number_id,
        send_at=send_at if hours is None else hours.first_open(send_at),
        customer_hours=None if hours is None else hours.stored(),
        body=outbound.outgoing(outbound.without(request.raw, *MEMBERS), message),
    )


def _hours(body: dict[str, Any]) -> CustomerHours | None:
    """The customer's hours in a request. None without `customer_hours`. Raises InvalidRequest, for example if the
    customer's time zone is unknown.
    """
    value = body.get(customer_hours.MEMBER)
    if value is None:
        return None
    hours = customer_hours.hours_of(value)
    to = str(body.get("to") or body.get("recipient") or "")
    zones = customer_hours.zones_of(None if body.get("recipient_type") == "group" else to)
    if not zones:
        raise InvalidRequest.of(**{customer_hours.MEMBER: customer_hours.NO_ZONE})
    return hours.within(zones)


def find(
    *, tenant_id: UUID, environment: str, scheduled_id: str, within: frozenset[str] | None = None
) -> ScheduledMessage:
    """A tenant's scheduled message by its public id. Raises NotFound."""
    own = ScheduledMessage.objects.for_environment(tenant_id, environment, within)
    return by_public_id(own, ids.SCHEDULED, scheduled_id, "scheduled message")


def change(message: ScheduledMessage, send_at: datetime) -> ScheduledMessage:
    """Move a waiting message to another time. Raises Conflict when the message is being sent or has ended."""
    with transaction.atomic():
        waiting = _waiting(message)
        hours = customer_hours.restored(waiting.customer_hours)
        waiting.send_at = send_at if hours is None else hours.first_open(send_at)
        waiting.save(update_fields=["send_at"])
    return waiting


def cancel(message: ScheduledMessage) -> ScheduledMessage:
    """Cancel a waiting message. Raises Conflict when the message is being sent or has ended."""
    with transaction.atomic():
        waiting = _waiting(message)
        waiting.status, waiting.ended_at, waiting.body = Status.CANCELLED, now(), b""
        waiting.save(update_fields=["status", "ended_at", "body"])
    return waiting


def _waiting(message: ScheduledMessage) -> ScheduledMessage:
    """Lock the message. Raises Conflict unless it still waits for its time."""
    locked = ScheduledMessage.objects.select_for_update(no_key=True).get(pk=message.pk)
    if locked.status != Status.SCHEDULED:
        raise Conflict(f"This message is {locked.status}.", details={"status": locked.status})
    return locked
