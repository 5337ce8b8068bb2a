"""Models of the message flows, and of the mirror of the upstream's message templates.

The mirror has a row for each account and a row for each template (docs/templates.md). Only
`message_templates/mirror.py` writes the mirror. It locks the account's row first, so writers of one account take turns.
"""

from datetime import datetime
from typing import ClassVar, Self
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from gateway import ids
from gateway.clock import now
from gateway.encryption import EncryptedTextField
from gateway.ids import uuid7
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants.labels import label
from tenants.models import ApiKey, Tenant, TenantRows
from webhooks.models import MAX_URL_LENGTH


class TemplateMirror(models.Model):
    """An account's part of the mirror: when its templates were last read, and when they are read again."""

    account = models.OneToOneField(
        BusinessAccount, on_delete=models.CASCADE, primary_key=True, related_name="template_mirror"
    )
    next_sync_at = models.DateTimeField(default=now)
    """When the next read is due. A claim sets it to the end of the lease, so after a crash the read is due again."""
    failures = models.PositiveSmallIntegerField(default=0)
    read_at = models.DateTimeField(null=True, blank=True)
    """When the read of the last stored list began. A list whose read began earlier is ignored."""

    class Meta:
        indexes: ClassVar = [models.Index(fields=["next_sync_at"], name="template_mirror_by_sync")]

    def __str__(self) -> str:
        return str(self.account_id)


class MessageTemplateQuerySet(TenantRows["MessageTemplate"]):
    def for_tenant(self, tenant_id: UUID) -> Self:
        """The tenant's templates, without deleted ones."""
        return super().for_tenant(tenant_id).filter(deleted_at__isnull=True)


class MessageTemplate(models.Model):
    """One language of a message template, as Meta last described it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    account = models.ForeignKey(BusinessAccount, on_delete=models.CASCADE, related_name="templates")
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    template_id = models.CharField(max_length=64)
    """Meta's id."""
    name = models.CharField(max_length=512)
    language = models.CharField(max_length=32)
    """The language with an underscore (`en_US`), even if Meta used another form."""
    status = models.CharField(max_length=32)
    category = models.CharField(max_length=32)
    document = models.TextField()
    """Meta's object as JSON text. A jsonb column would not keep the order of members."""
    changed_at = models.DateTimeField()
    """The time of the last stored update. A read that began before it does not overwrite the row."""
    deleted_at = models.DateTimeField(null=True, blank=True)
    """When a command or an event deleted the template. The row is deleted when a later list lacks the template."""

    objects = MessageTemplateQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "template_id"], name="template_once_per_account"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "environment", "-id"], name="template_by_tenant"),
            models.Index(fields=["tenant", "template_id"], name="template_by_upstream_id"),
        ]

    def __str__(self) -> str:
        return self.template_id


class KeptNotification(models.Model):
    """A signed notification that did not become an event, because it is unroutable or malformed. Stored for 30 days."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    received_at = models.DateTimeField(default=now, editable=False)
    reason = models.CharField(max_length=30)
    error = models.CharField(max_length=255, null=True)
    waba_id = models.CharField(max_length=64, null=True)
    body_sha256 = models.CharField(max_length=64, unique=True)
    body = models.BinaryField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["received_at"], name="kept_by_age")]

    def __str__(self) -> str:
        return f"{label(self.reason)} {self.id}"


class IdempotencyRecord(models.Model):
    """One use of an Idempotency-Key. Inserted before the upstream call begins, completed with the outcome.

    A record without an answer is in progress or was interrupted. After an interruption the outcome is unknown, and
    the message is never sent again (decision "Messages").
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "key")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    key = models.CharField(max_length=255)
    path = models.CharField(max_length=100)
    body_hash = models.BinaryField(max_length=32)
    started_at = models.DateTimeField(default=now)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=dict)
    body = models.BinaryField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["started_at"], name="idempotency_by_age")]

    def __str__(self) -> str:
        return self.key


class KnownMedia(models.Model):
    """The number that a media file belongs to. Written and read by `known_nodes.py`."""

    pk = models.CompositePrimaryKey("tenant_id", "environment", "media_id")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    media_id = models.CharField(max_length=64)
    phone_number_id = models.CharField(max_length=64)
    noted_at = models.DateTimeField(default=now)
    deleted_at = models.DateTimeField(null=True)
    """When the file was deleted at Meta through this API."""

    class Meta:
        indexes: ClassVar = [models.Index(fields=["noted_at"], name="known_media_by_age")]

    def __str__(self) -> str:
        return self.media_id


class KnownNode(models.Model):
    """A node of the Graph API (flow, group, catalog) that an answer or a notification for the tenant named.

    Written and read by `known_nodes.py`.
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "node_id")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    node_id = models.CharField(max_length=255)
    kind = models.CharField(max_length=16)
    waba_id = models.CharField(max_length=64)
    """The account whose token has access to the node."""
    noted_at = models.DateTimeField(default=now)

    def __str__(self) -> str:
        return self.node_id


class Batch(ids.PublicId, models.Model):
    """Messages that one number sends at its pace (specification 2).

    `batches/lifecycle.py` writes it on creation, cancellation, change of time and retry. `batches/held_batch.py` writes
    the reason for waiting, and everything while a runner holds the batch. A batch is open until `completed_at` is set.
    `lease_token` identifies the runner that holds the batch.
    """

    class Status(models.TextChoices):
        QUEUED = "queued"
        COMPLETED = "completed"
        CANCELLED = "cancelled"

    class WaitingFor(models.TextChoices):
        NUMBER_NOT_CONNECTED = "number_not_connected", "Number not connected"
        NUMBER_RELEASED = "number_released", "Number released"
        TENANT_SUSPENDED = "tenant_suspended", "Business suspended"
        SCHEDULED = "scheduled", "Scheduled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = ids.BATCH
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="batches")
    environment = models.CharField(max_length=4)
    phone_number_id = models.CharField(max_length=64)
    client_ref = models.CharField(max_length=255, null=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.QUEUED)
    total = models.PositiveIntegerField()
    accepted = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    skipped = models.IntegerField(default=0, db_default=0)
    """How many items of an open batch are skipped already, so that they do not count as waiting. Zero in a batch that
    is older than this column. An ended batch has skipped all items that were neither accepted nor failed.
    """
    rate_per_sec = models.PositiveIntegerField()
    waiting_for = models.CharField(max_length=32, choices=WaitingFor.choices, null=True)
    """Why an open batch sends nothing now. Null while it is being sent, and while it only waits for a free runner."""
    waiting_since = models.DateTimeField(null=True)
    """When the wait began. Null for a scheduled batch, which only waits for its time."""
    send_at = models.DateTimeField(null=True)
    """The batch sends nothing before this time. Null for a batch that starts as soon as a runner is free."""
    retries = models.PositiveSmallIntegerField(default=0, db_default=0)
    """How often the batch's failed items were queued again. The number is part of the dedupe keys, so that each round
    has its own events.
    """
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    leased_by = models.BigIntegerField(null=True)
    """The registered worker that holds or last held the lease (`gateway/database/live_workers.py`)."""
    created_at = models.DateTimeField(default=now, editable=False)
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    body_bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    """The size of all items, in the form sent to Meta."""
    messages_hash = models.BinaryField(max_length=32, null=True)
    """SHA-256 of the messages as the caller wrote them, without white space. Null for a batch that is older than
    this column.
    """
    customer_hours = models.JSONField(null=True)
    """The batch is sent only in these hours (`sending/customer_hours.py`). Null means at any time."""
    skip_opted_out = models.BooleanField(default=False, db_default=False)
    """Whether to skip each message whose customer is opted out at the time of sending."""
    traceparent = models.CharField(max_length=55, null=True)
    """The span of the request that created the batch, in W3C Trace Context form. Null while traces are off."""

    objects = TenantRows["Batch"].as_manager()

    class Meta:
        verbose_name_plural = "batches"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "client_ref"], name="batch_client_ref_once_per_tenant"),
            models.UniqueConstraint(
                fields=["phone_number_id"],
                condition=models.Q(lease_token__isnull=False),
                name="batch_one_at_a_time_per_number",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["phone_number_id", "id"],
                condition=models.Q(completed_at__isnull=True),
                name="batch_open",
            ),
            models.Index(
                fields=["send_at"],
                condition=models.Q(waiting_for="scheduled"),
                name="batch_scheduled",
            ),
            models.Index(fields=["completed_at"], name="batch_by_age"),
            models.Index(fields=["tenant", "environment", "-id"], name="batch_by_tenant"),
        ]

    def __str__(self) -> str:
        return self.public_id

    def has_messages(self, messages_hash: bytes) -> bool:
        """Whether the batch was created from these messages. False for a batch without a hash."""
        return self.messages_hash is not None and bytes(self.messages_hash) == messages_hash


class BatchItem(models.Model):
    """One message of a batch (specification 2). `body` has the bytes that Meta receives.

    `claimed_by` is the lease of the runner that sends the item. It is set before the message is sent. A pending item
    whose claim has no holder any more was interrupted, and is never sent again. A failed item keeps its body if it was
    certainly not sent and may succeed later (`POST …/retry`). All other ended items have no body.
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        ACCEPTED = "accepted"
        FAILED = "failed"
        SKIPPED = "skipped"

    pk = models.CompositePrimaryKey("batch_id", "idx")
    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="items", db_index=False)
    idx = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    body = models.BinaryField()
    claimed_by = models.UUIDField(null=True)
    http_status = models.PositiveSmallIntegerField(null=True)
    wamid = models.TextField(null=True)
    response = models.BinaryField(null=True)
    event_id = models.UUIDField(null=True)
    sent_at = models.DateTimeField(null=True)
    message_ref = models.CharField(max_length=255, null=True)
    """The caller's id of the message. Meta never gets it."""
    first_batch_id = models.UUIDField(null=True)
    """The batch of the earlier item with the same `message_ref`, if this item was skipped for that reason. `first_idx`
    is the position of the earlier item.
    """
    first_idx = models.IntegerField(null=True)
    skip_reason = models.CharField(max_length=20, null=True)
    """Why an item was skipped: `opted_out`. Null if the batch ended first, or if `message_ref` was the reason."""

    def __str__(self) -> str:
        return f"{self.batch_id} {self.idx}"


class MessageReference(models.Model):
    """The `message_ref` of a batch item. For 30 days no other item of the tenant and environment is sent with it.

    Only a hash is stored, because callers build references from names and phone numbers. Written by
    `batches/references.py`.
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "ref_hash")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    ref_hash = models.BinaryField(max_length=32)
    batch_id = models.UUIDField()
    idx = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=now)
    """When the batch was created, or its `send_at` if that is later. The 30 days count from here."""

    class Meta:
        indexes: ClassVar = [models.Index(fields=["created_at"], name="message_reference_by_age")]

    def __str__(self) -> str:
        return f"{self.batch_id} {self.idx}"


class ScheduledMessage(ids.PublicId, ids.MadeById, models.Model):
    """A single message that is sent at a later time.

    Written by `batches/scheduled_messages.py`. After it is claimed, `batches/scheduled_sender.py` writes it.

    It is claimed (`sending`) before it is sent, and claimed for sending a second time only if WhatsApp certainly did
    not take it, so it is sent at most once. If a claim expires without a result, the send was interrupted and its
    outcome is unknown.
    """

    class Status(models.TextChoices):
        SCHEDULED = "scheduled"
        SENDING = "sending"
        ACCEPTED = "accepted"
        FAILED = "failed"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    id_prefix = ids.SCHEDULED
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    phone_number_id = models.CharField(max_length=64)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.SCHEDULED)
    send_at = models.DateTimeField()
    customer_hours = models.JSONField(null=True)
    """The message is sent only in these hours (`sending/customer_hours.py`). Null means at any time."""
    body = models.BinaryField()
    """The bytes that Meta receives. Empty after the message has ended, because its event then has the body.
    """
    claimed_until = models.DateTimeField(null=True)
    """When the claim expires. While the message is `scheduled`: it is not claimed before this time."""
    claim = models.UUIDField(null=True)
    http_status = models.PositiveSmallIntegerField(null=True)
    wamid = models.TextField(null=True)
    response = models.BinaryField(null=True)
    event_id = models.UUIDField(null=True)
    sent_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects = TenantRows["ScheduledMessage"].as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "environment", "-id"], name="scheduled_by_tenant"),
            models.Index(
                fields=["send_at"], condition=models.Q(status="scheduled"), name="scheduled_by_time"
            ),
            models.Index(
                fields=["tenant_id", "environment"],
                condition=models.Q(status="scheduled"),
                name="scheduled_waiting",
            ),
            models.Index(
                fields=["claimed_until"], condition=models.Q(status="sending"), name="scheduled_claimed"
            ),
            models.Index(fields=["ended_at"], name="scheduled_by_age"),
        ]

    def __str__(self) -> str:
        return self.public_id


class FlowEndpoint(models.Model):
    """The tenant's server that answers the data requests of a number's Flows. Written by `flows/endpoints.py`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    """Part of the public URL that WhatsApp calls."""
    number = models.OneToOneField(PhoneNumber, on_delete=models.CASCADE, related_name="+")
    url = models.CharField(max_length=MAX_URL_LENGTH)
    secret = EncryptedTextField(purpose="flow_secret")
    secret_prefix = models.CharField(max_length=20)
    previous_secret = EncryptedTextField(purpose="flow_secret", null=True)
    previous_secret_expires_at = models.DateTimeField(null=True)
    private_key = EncryptedTextField(purpose="flow_private_key", null=True)
    """The private key whose public key was the last to be uploaded successfully."""
    next_private_key = EncryptedTextField(purpose="flow_private_key", null=True)
    """A private key whose public key is being uploaded, or may have been uploaded."""
    key_uploaded_at = models.DateTimeField(null=True)
    last_request_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=30, null=True)
    """Why the tenant's last answer could not be used. Null when it was used."""
    created_at = models.DateTimeField(default=now, editable=False)
    new_secret: str
    """The new secret, which is shown once. Set only on an instance that was just created or rotated."""

    def __str__(self) -> str:
        return str(self.id)

    @property
    def endpoint_uri(self) -> str:
        """The public URL to which WhatsApp sends the data requests, in the form that a Flow needs."""
        return f"{settings.BASE_URL}/upstream/flows/{self.id.hex}"


class BatchFile(models.Model):
    """A CSV file that a member uploaded for a batch. Written only by `csv_batches.py`.

    The content is removed when the file's batch is created, and the row is deleted with the batch. A file without a
    batch is deleted after a day.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    environment = models.CharField(max_length=4)
    name = models.CharField(max_length=200)
    content = models.BinaryField()
    batch_id = models.UUIDField(null=True)
    """The batch created from the file. Not a foreign key, because batches are deleted by plain SQL."""
    row_numbers = ArrayField(models.PositiveIntegerField(), null=True)
    """For each message in order, the number of its row in the spreadsheet."""
    created_at = models.DateTimeField(default=now, editable=False)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["created_at"], name="batch_file_by_age"),
            models.Index(fields=["batch_id"], name="batch_file_of_batch"),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def batch_public_id(self) -> str | None:
        return ids.encode(ids.BATCH, self.batch_id) if self.batch_id else None


class ReadMark(models.Model):
    """How far a team has read a conversation. Written by `conversations/read_marks.py`."""

    pk = models.CompositePrimaryKey("tenant_id", "environment", "conversation")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    conversation = models.BigIntegerField()
    """A hash of the number and the customer, because the row must not name the customer."""
    through = models.UUIDField()
    """The newest message that the team has read."""
    read_at = models.DateTimeField(default=now)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["read_at"], name="read_mark_by_age")]

    def __str__(self) -> str:
        return str(self.conversation)


class OptOut(models.Model):
    """Whether a customer wants marketing messages from a number, stored under one of the customer's ids.

    Written by `opt_outs.py`. The customer's setting in WhatsApp and the customer's stop or start words are stored
    separately, because a start word does not undo the setting.
    """

    pk = models.CompositePrimaryKey("tenant_id", "environment", "phone_number_id", "customer")
    tenant_id = models.UUIDField()
    environment = models.CharField(max_length=4)
    phone_number_id = models.CharField(max_length=255)
    customer = models.CharField(max_length=255)
    """The wa_id or the user_id. A customer with both ids has a row for each."""
    id = models.UUIDField()
    """A new id for each change of state. Lists are ordered by it."""
    wa_id = models.CharField(max_length=255, null=True)
    user_id = models.CharField(max_length=255, null=True)
    reported_stop = models.BooleanField(default=False)
    reported_at = models.DateTimeField(null=True)
    """When the customer set the preference that Meta last reported. `reported_stop` is that preference."""
    wrote_stop = models.BooleanField(default=False)
    wrote_at = models.DateTimeField(null=True)
    """When the customer wrote the last stop or start word. `wrote_stop` is true for a stop word."""

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["tenant_id", "environment", "-id"],
                name="opt_out_by_tenant",
                condition=models.Q(reported_stop=True) | models.Q(wrote_stop=True),
            )
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def opted_out_source(self) -> str | None:
        """The source of the opt-out. None for a customer who is not opted out."""
        return "whatsapp" if self.reported_stop else "stop_word" if self.wrote_stop else None

    @property
    def opted_out_at(self) -> datetime | None:
        """When the customer opted out. None for a customer who is not opted out."""
        return self.reported_at if self.reported_stop else self.wrote_at if self.wrote_stop else None


class Erasure(ids.MadeById, models.Model):
    """A request to erase one customer's data. After the erasure, the row is its receipt. Written by `erasure.py`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.UUIDField()
    customer_id = EncryptedTextField(purpose="erasure_customer", null=True)
    """The customer's id, encrypted. From the first run on, the customer's other ids follow (`BETWEEN_IDS`). Null after
    the erasure.
    """
    customer_hash = models.CharField(max_length=64)
    """A keyed hash of the customer's id, because the receipt must not name the customer."""
    erased = models.JSONField(null=True)
    """The number of erased rows by kind. Partial until the erasure is completed."""
    leased_until = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    objects = TenantRows["Erasure"].as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant_id", "customer_hash"],
                condition=models.Q(completed_at__isnull=True),
                name="one_open_erasure_of_a_customer",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "-id"], name="erasure_by_tenant")]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def status(self) -> str:
        """`pending` until everything is erased, then `completed`."""
        return "pending" if self.completed_at is None else "completed"

    @property
    def receipt(self) -> dict[str, int] | None:
        """The number of erased rows by kind, once everything is erased."""
        return self.erased if self.completed_at is not None else None
