"""Rows of the event log and of its deliveries: endpoints, events with their bodies, deliveries, messages, hourly
figures.

Events, bodies and deliveries are partitioned by time and have no foreign keys. `events/publish.py` writes them with
their deliveries, `replay.py` adds deliveries, `delivery/claim_statements.py` leases them, `delivery/recorder.py` stores
their outcomes. Whole partitions are dropped (docs/architecture.md). Endpoints, events and deliveries belong to one of
the tenant's two environments, `live` and `test`. A key reaches only those of its own environment.

A message's row has the facts about the message without its content. Other tables have hourly counts, and the hours that
must be recounted.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from gateway import ids
from gateway.clock import now
from gateway.encryption import EncryptedTextField
from gateway.ids import uuid7
from gateway.upstream.notifications.change import Status
from tenants.models import ApiKey, Tenant, TenantRows

LIVE = ApiKey.Environment.LIVE
MAX_URL_LENGTH = 2048
"""The maximum number of characters of an endpoint's URL."""


def _environment() -> "models.CharField[str, str]":
    """The column of the environment. Its database default is for rows written by the former version."""
    return models.CharField(max_length=4, choices=ApiKey.Environment.choices, default=LIVE, db_default=LIVE)


def steps_of(retry_schedule: str) -> list[int]:
    """The steps of a stored retry schedule, in seconds."""
    return [int(step) for step in retry_schedule.split()]


class JsonPathField(models.TextField):  # type: ignore[type-arg]
    """A jsonpath of Postgres, written and read as text. Postgres parses the text when it is stored."""

    def db_type(self, connection: Any) -> str:
        return "jsonpath"


class Endpoint(models.Model):
    """A tenant's webhook endpoint. `endpoints/lifecycle.py` writes it, `delivery/recorder.py` its counters."""

    class Status(models.TextChoices):
        PENDING = "pending"
        ACTIVE = "active"
        PAUSED = "paused"
        DISABLED = "disabled"

    class Kind(models.TextChoices):
        WEBHOOK = "webhook"
        INBOX = "inbox"
        SQS = "sqs"
        S3 = "s3"
        KAFKA = "kafka"
        RABBITMQ = "rabbitmq"

    class Format(models.TextChoices):
        ENVELOPE = "envelope"
        META = "meta"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="endpoints")
    environment = _environment()
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.WEBHOOK, db_default=Kind.WEBHOOK)
    """Where events go: to a server, or to a destination in `webhooks/destinations/`. An inbox represents the
    conversations of the console. It reads the event log, so it has no deliveries and no event types.
    """
    url = models.CharField(max_length=MAX_URL_LENGTH)
    """The server's URL, or the address in a destination's settings."""
    format = models.CharField(
        max_length=8, choices=Format.choices, default=Format.ENVELOPE, db_default=Format.ENVELOPE
    )
    """The format of bodies: the service's envelope, or Meta's notification. Never changes."""
    verify_token = EncryptedTextField(purpose="webhook_verify_token", null=True, blank=True)
    """The token that the handshake of Meta's format shows to the receiver."""
    description = models.CharField(max_length=500, default="", blank=True)
    event_types = ArrayField(models.CharField(max_length=40))
    waba_ids = ArrayField(models.CharField(max_length=64), null=True, blank=True)
    phone_number_ids = ArrayField(models.CharField(max_length=64), null=True, blank=True)
    """The accounts and numbers whose events the endpoint gets. Null means all events, including those without an
    account or a number.
    """
    statuses = ArrayField(models.CharField(max_length=20), null=True, blank=True)
    """The statuses whose `message.status` events the endpoint gets. Null means all. Other types are not affected."""
    filter = models.JSONField(null=True, blank=True)
    filter_path = JsonPathField(null=True, blank=True, editable=False)
    """The filter by content, as the caller wrote it (`filter`) and as Postgres evaluates it (`events/filters.py`)."""
    headers = EncryptedTextField(purpose="webhook_headers", null=True, blank=True)
    """The caller's headers as JSON, sent with every request (`requests/signed_request.py`)."""
    credentials = EncryptedTextField(purpose="webhook_credentials", null=True, blank=True)
    """Further credentials of the endpoint's requests, as JSON (`requests/credentials.py`)."""
    retry_schedule = models.CharField(max_length=140, null=True, blank=True)
    """Seconds from each failed attempt to the next, separated by spaces. Null means WEBHOOK_RETRY_SCHEDULE."""
    batch_events = models.PositiveSmallIntegerField(null=True, blank=True)
    batch_milliseconds = models.PositiveSmallIntegerField(null=True, blank=True)
    """The maximum number of events in one request, and how long a request waits for more events. Null means one event
    per request.
    """
    quiet_seconds = models.PositiveSmallIntegerField(null=True, blank=True)
    """How many seconds a customer's messages are collected, from the first message on. Null means that they are not
    collected.
    """
    timeout_seconds = models.PositiveSmallIntegerField(null=True, blank=True)
    """The time limit of a whole delivery attempt in seconds. Null means 15."""
    rate_per_second = models.PositiveSmallIntegerField(null=True, blank=True)
    paced_until = models.DateTimeField(null=True, blank=True)
    """When the rate limit's next slot is free (`delivery/ordering.py`)."""
    ordered = models.BooleanField(default=False, db_default=False)
    """Whether the events of one customer are sent one after another (`delivery/ordering.py`)."""
    uid = models.CharField(max_length=255, null=True, blank=True)
    metadata = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()), blank=True)
    """The caller's id and notes for the endpoint. They are never sent to the endpoint."""
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    verified_at = models.DateTimeField(null=True, blank=True)
    secret = EncryptedTextField(purpose="webhook_secret")
    secret_prefix = models.CharField(max_length=12)
    previous_secret = EncryptedTextField(purpose="webhook_secret", null=True, blank=True)
    previous_secret_expires_at = models.DateTimeField(null=True, blank=True)
    secret_unreadable_since = models.DateTimeField(null=True, blank=True)
    """The time since which no key of ENCRYPTION_KEYS decrypts `secret`. Until there is a new secret, deliveries are put
    off.
    """
    last_success_at = models.DateTimeField(null=True, blank=True)
    consecutive_failures = models.PositiveIntegerField(default=0)
    failing_since = models.DateTimeField(null=True, blank=True)
    told_failing_since = models.DateTimeField(null=True, blank=True)
    """The `failing_since` of the last notice to the tenant (`endpoints/notices.py`). Null after the recovery."""
    circuit_open_until = models.DateTimeField(null=True, blank=True)
    circuit_opened = models.PositiveSmallIntegerField(default=0)
    """How often the circuit has opened in a row. Each opening doubles the wait for the next probe."""
    circuit_generation = models.PositiveIntegerField(default=0, db_default=0)
    """How often the circuit has opened and the endpoint was made active, in all. An attempt that was claimed before the
    last of these changes is late.
    """
    window_started_at = models.DateTimeField(null=True, blank=True)
    window_attempts = models.PositiveIntegerField(default=0)
    window_failures = models.PositiveIntegerField(default=0)
    """Attempts and failures in the current window of five minutes. The circuit opens when half of the attempts
    failed.
    """
    disabled_at = models.DateTimeField(null=True, blank=True)
    keep_answers = models.BooleanField(default=False, db_default=False)
    """Whether the beginnings of answers to successful attempts are stored too.

    `delivery/retries_and_attempt_log.py` stores them.
    """
    exhausted_mail_threshold = models.PositiveIntegerField(default=1, db_default=1, null=True, blank=True)
    """A mail is sent once this many deliveries are given up within a day. Null means no mail."""
    exhausted_count = models.PositiveIntegerField(default=0, db_default=0)
    exhausted_since = models.DateTimeField(null=True, blank=True)
    """How many deliveries were given up in the current 24 hours, and when these began (`endpoints/notices.py`)."""
    created_at = models.DateTimeField(default=now, editable=False)

    objects = TenantRows["Endpoint"].as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "environment", "uid"], name="endpoint_once_per_uid")
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "-id"], name="endpoint_by_tenant"),
            models.Index(
                fields=["id"],
                name="endpoint_not_well",
                condition=Q(failing_since__isnull=False) | Q(told_failing_since__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return urlsplit(self.url).hostname or str(self.id)


class Event(ids.PublicId, ids.MadeById, models.Model):
    """The envelope of an event without its bodies (specification 6). Partitioned by the month of its id."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = ids.EVENT
    tenant_id = models.UUIDField()
    environment = _environment()
    type = models.CharField(max_length=40)
    waba_id = models.CharField(max_length=255, null=True)
    phone_number_id = models.CharField(max_length=255, null=True)
    display_phone_number = models.CharField(max_length=255, null=True)
    wamid = models.TextField(null=True)
    wa_id = models.CharField(max_length=255, null=True)
    user_id = models.CharField(max_length=255, null=True)
    dedupe_key = models.CharField(max_length=255)
    raw_path = models.TextField(null=True)
    raw_id = models.UUIDField(null=True)
    """The payload row with the notification. All events of the notification share it."""
    payload_expires_on = models.DateField()
    status = models.CharField(max_length=20, null=True)
    error_code = models.IntegerField(null=True)
    """The status and the error that the event reports about its message. Because of these columns, lists of events
    need no bodies.
    """
    traceparent = models.CharField(max_length=55, null=True)
    """The span in which the event was created, in the form of W3C Trace Context. Null while traces are off."""

    payload_available: bool
    """Whether the body is stored and within retention. Not a column: `events/search.py` sets it for lists."""
    delivery_counts: Mapping[str, int]
    """How many of the event's deliveries have each status. Not a column: `events/search.py` sets it for lists."""

    objects = TenantRows["Event"].as_manager()

    class Meta:
        db_table = "events"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="event_by_tenant"),
            models.Index(fields=["tenant_id", "-id"], name="event_of_test", condition=Q(environment="test")),
            models.Index(
                fields=["tenant_id", "wamid", "-id"],
                name="event_by_message",
                condition=Q(wamid__isnull=False),
            ),
            models.Index(fields=["tenant_id", "type", "-id"], name="event_by_type"),
            models.Index(fields=["tenant_id", "waba_id", "-id"], name="event_by_account"),
            models.Index(fields=["tenant_id", "phone_number_id", "-id"], name="event_by_number"),
            models.Index(
                fields=["tenant_id", "wa_id", "-id"],
                name="event_by_customer",
                condition=Q(wa_id__isnull=False),
            ),
            models.Index(
                fields=["tenant_id", "user_id", "-id"],
                name="event_by_user",
                condition=Q(user_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class EventPayload(models.Model):
    """A body: an event's `data` or a notification's bytes. Partitioned by the week of expiry. Partitions are
    dropped whole.
    """

    pk = models.CompositePrimaryKey("expires_on", "id")
    expires_on = models.DateField()
    id = models.UUIDField()
    tenant_id = models.UUIDField()
    body = models.BinaryField()

    class Meta:
        db_table = "event_payloads"

    def __str__(self) -> str:
        return str(self.id)


class EventKey(models.Model):
    """The dedupe key of a published event. Meta repeats notifications for days, and this key stops each repetition."""

    pk = models.CompositePrimaryKey("tenant_id", "dedupe_key")
    tenant_id = models.UUIDField()
    dedupe_key = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=now)

    class Meta:
        db_table = "event_keys"
        indexes: ClassVar = [models.Index(fields=["created_at"], name="event_key_by_age")]

    def __str__(self) -> str:
        return self.dedupe_key


class RetentionMove(models.Model):
    """The progress of moving a tenant's bodies after a change of retention. `events/retention.py` writes it."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+")
    retention_days = models.PositiveSmallIntegerField()
    after = models.UUIDField(null=True)
    """The last event whose body was moved or left in place. Null once all events are done."""

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant"], name="retention_to_move", condition=Q(after__isnull=False))
        ]

    def __str__(self) -> str:
        return str(self.tenant_id)


class ReplayChunk(models.Model):
    """Deliveries or missed events of an endpoint that wait for their replay. `replay.py` writes it."""

    id = models.BigAutoField(primary_key=True)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+", db_index=False)
    missed = models.BooleanField()
    """Whether the ids are those of events rather than of deliveries."""
    source_ids = ArrayField(models.UUIDField())
    due_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["endpoint", "id"], name="replay_by_endpoint")]

    def __str__(self) -> str:
        return str(self.id)


class Delivery(ids.PublicId, ids.MadeById, models.Model):
    """The delivery of one event to one endpoint. Partitioned by the week of its id."""

    class Status(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        FAILED = "failed"
        DEAD = "dead"

    OPEN = (Status.PENDING, Status.FAILED)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = ids.DELIVERY
    tenant_id = models.UUIDField()
    environment = _environment()
    endpoint_id = models.UUIDField()
    event_id = models.UUIDField()
    event_type = models.CharField(max_length=40)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    leased_until = models.DateTimeField(null=True)
    """End of the lease that a worker holds. If it has passed, the worker did not finish, and may have died."""
    leased_by = models.BigIntegerField(null=True)
    """The registered worker that holds the lease, or that held the last one (`gateway/database/live_workers.py`)."""
    dead_at = models.DateTimeField(null=True)
    last_http_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=30, null=True)
    last_response_ms = models.PositiveIntegerField(null=True)
    attempt_log = models.JSONField(default=list)
    answers = models.JSONField(null=True)
    """Stored answers to the newest attempts (`delivery/retries_and_attempt_log.py`). Null past retention."""
    customer_key = models.BigIntegerField(null=True)
    """A hash of the customer while a delivery to an ordered endpoint is open. `URGENT_KEY` while a call's delivery
    is open.
    """
    is_replay = models.BooleanField(default=False)
    replay_of = models.UUIDField(null=True)

    objects = TenantRows["Delivery"].as_manager()

    class Meta:
        db_table = "webhook_deliveries"
        verbose_name_plural = "deliveries"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="delivery_by_tenant"),
            models.Index(
                fields=["tenant_id", "-id"], name="delivery_of_test", condition=Q(environment="test")
            ),
            models.Index(fields=["event_id"], name="delivery_by_event"),
            models.Index(
                fields=["endpoint_id", "next_attempt_at"],
                name="delivery_due",
                condition=Q(status__in=["pending", "failed"]),
            ),
            models.Index(fields=["dead_at"], name="delivery_dead", condition=Q(status="dead")),
            models.Index(
                fields=["endpoint_id", "customer_key", "event_id", "id"],
                name="delivery_in_order",
                condition=Q(status__in=["pending", "failed"], customer_key__isnull=False),
            ),
            models.Index(
                fields=["tenant_id", "id"], name="delivery_with_answers", condition=Q(answers__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


def expires_on(created_at: datetime, retention_days: int) -> date:
    """The first day on which a body may be dropped. Its partition is dropped when the week of that day has ended."""
    return (created_at + timedelta(days=retention_days + 1)).date()


class ExhaustedDelivery(models.Model):
    """A given-up delivery that has not been reported yet.

    `delivery/recorder.py` inserts it with the outcome. `endpoints/notices.py` reports and deletes it.
    """

    delivery_id = models.UUIDField(primary_key=True)
    endpoint_id = models.UUIDField(db_index=True)

    def __str__(self) -> str:
        return ids.encode(ids.DELIVERY, self.delivery_id)


OLDEST_HISTORY = timedelta(days=180)
"""How old the chats imported from the WhatsApp Business app can be (upstream fact 3.6)."""
EXPUNGED = "expunged:"
"""Prefix of the key of an expunged message and of the dedupe key of an expunged event. The row's id follows it."""
PRECEDENCE: Mapping[Status, str] = {
    "failed": "failed_at",
    "read": "read_at",
    "delivered": "delivered_at",
    "sent": "sent_at",
    "accepted": "accepted_at",
}
"""The time column of each status of an outbound message (upstream fact 3.3). The first column that has a time gives
the status shown.
"""


def _conditions() -> Mapping[str, str]:
    """SQL for `Message.status`: the status's own time is set, and no earlier column of `PRECEDENCE` is."""
    conditions = {"received": "direction = 'inbound'"}
    earlier = "direction = 'outbound'"
    for status, column in PRECEDENCE.items():
        conditions[status] = f"({earlier} AND {column} IS NOT NULL)"
        earlier += f" AND {column} IS NULL"
    return {**conditions, "unknown": f"({earlier})"}


STATUS_CONDITIONS = _conditions()


class Message(ids.MadeById, models.Model):
    """A message and its progress. `events/publish.py` writes it with the message's events. Partitioned by month.

    Each time is the earliest that an event reported, so the order of events does not matter. The content is in the body
    of the event that has the message.
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "key", "month")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    key = models.TextField(db_collation="C")
    """The wamid. A message without a wamid has the public id of its event."""
    month = models.DateField()
    """The first day of the month in which the time in `id` lies."""
    id = models.UUIDField()
    """Id of the message's first published event. For an old chat, an id with the time of sending. Never changes."""
    direction = models.CharField(max_length=8)
    waba_id = models.CharField(max_length=255, null=True)
    phone_number_id = models.CharField(max_length=255, null=True)
    wa_id = models.CharField(max_length=255, null=True)
    user_id = models.CharField(max_length=255, null=True)
    type = models.CharField(max_length=40, null=True)
    template = models.CharField(max_length=512, null=True)
    template_language = models.CharField(max_length=20, null=True)
    batch_id = models.UUIDField(null=True)
    idx = models.IntegerField(null=True)
    event_id = models.UUIDField(null=True)
    """The event that has the message. Null while only statuses have arrived."""
    accepted_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    read_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)
    error_code = models.IntegerField(null=True)
    pricing_category = models.CharField(max_length=40, null=True)
    pricing_type = models.CharField(max_length=40, null=True)
    billable = models.BooleanField(null=True)
    service_ms = models.IntegerField(null=True)
    upstream_ms = models.IntegerField(null=True)
    referral_source_type = models.CharField(max_length=20, null=True)
    referral_source_id = models.CharField(max_length=255, null=True)
    """The id of the ad or post from which the customer sent this message."""
    referral_ctwa_clid = models.CharField(max_length=512, null=True)
    history = models.BooleanField(null=True)
    """Whether the message is an old chat of the WhatsApp Business app. The time in `id` is then the time of sending."""

    class Meta:
        db_table = "messages"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "environment", "-id"], name="message_by_tenant"),
            models.Index(
                fields=["tenant_id", "wa_id", "-id"],
                name="message_by_customer",
                condition=Q(wa_id__isnull=False),
            ),
            models.Index(
                fields=["tenant_id", "user_id", "-id"],
                name="message_by_user",
                condition=Q(user_id__isnull=False),
            ),
            models.Index(
                fields=["batch_id", "-id"], name="message_by_batch", condition=Q(batch_id__isnull=False)
            ),
            models.Index(
                fields=["tenant_id", "-id"], name="message_failed", condition=Q(failed_at__isnull=False)
            ),
            models.Index(
                fields=["tenant_id", "referral_source_id", "-id"],
                name="message_by_referral",
                condition=Q(referral_source_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def wamid(self) -> str | None:
        """Meta's id of the message. None if Meta gave none or the message was expunged."""
        return None if self.key.startswith((ids.EVENT, EXPUNGED)) else self.key

    @property
    def is_history(self) -> bool:
        """Whether the message is an old chat of the WhatsApp Business app."""
        return bool(self.history)

    @property
    def status(self) -> Status:
        """The furthest status, so a `sent` that arrives late does not replace `read`."""
        if self.direction == "inbound":
            return "received"
        reached = (status for status, column in PRECEDENCE.items() if getattr(self, column) is not None)
        return next(reached, "unknown")


class FigureChange(models.Model):
    """An hour of a tenant in which a message or an event was written. Publishing inserts it, and
    `analytics/rollup.py` gathers it.
    """

    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    hour = models.IntegerField()
    """The hour, counted from 1970."""
    noted_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "figure_changes"

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour}"


class FigureDue(models.Model):
    """An hour of a tenant that must be recounted, and when."""

    pk = models.CompositePrimaryKey("tenant_id", "environment", "hour")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    hour = models.IntegerField()
    due_at = models.DateTimeField()
    since = models.DateTimeField(null=True)
    """When the oldest uncounted change was recorded. Null if all known changes are counted and only open deliveries
    remain.
    """

    class Meta:
        db_table = "figures_due"
        indexes: ClassVar = [models.Index(fields=["due_at"], name="figure_due_by_time")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour}"


class Figure(models.Model):
    """How many messages or deliveries of an hour have a property. A recount replaces all rows of the hour."""

    pk = models.CompositePrimaryKey(
        "tenant_id", "environment", "hour", "phone_number_id", "template", "direction", "measure", "value"
    )
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    hour = models.IntegerField()
    phone_number_id = models.CharField(max_length=255)
    template = models.CharField(max_length=512)
    direction = models.CharField(max_length=8)
    """The direction of messages, or `webhook` for deliveries."""
    measure = models.CharField(max_length=20)
    value = models.CharField(max_length=40)
    """The counted value of the property, such as an error code. Empty for plain counts."""
    count = models.BigIntegerField()

    class Meta:
        db_table = "figures"
        indexes: ClassVar = [models.Index(fields=["hour"], name="figure_by_hour")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour} {self.measure}"
