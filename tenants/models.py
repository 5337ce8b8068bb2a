"""Models of the tenants app: tenants, platform apps, API keys, users, and the audit log.

Contains only columns and constraints. Rows are written by `signup/sign_ups.py`, `tenant_status.py`,
`tenant_settings.py` and `platform_apps.py` (tenants), `credentials/api_keys.py` (API keys),
`credentials/bearer_tokens.py` (console tokens), `mail.py` and `audit.py`.
"""

from collections.abc import Collection
from typing import Any, ClassVar, Self, TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce

from gateway.clock import now
from gateway.ids import uuid7
from gateway.roles import ALL_SCOPES, LIVE_SCOPES, KeyScope, Role
from tenants.audit_labels import action_words

_Row = TypeVar("_Row", bound=models.Model)


class TenantRows(models.QuerySet[_Row]):
    """Query set of rows that belong to a tenant and to one of its environments."""

    def for_tenant(self, tenant_id: UUID) -> Self:
        """The rows of a tenant in both environments."""
        return self.filter(tenant_id=tenant_id)

    def for_environment(
        self, tenant_id: UUID, environment: str, within: Collection[str] | None = None
    ) -> Self:
        """The rows of a tenant in one environment. `within` limits them to the numbers of a limited key."""
        own = self.for_tenant(tenant_id).filter(environment=environment)
        return own if within is None else own.filter(phone_number_id__in=within)


# --- Device log-ins: a program without a browser requests an API key, and a member confirms it in the console.


class DeviceLogin(models.Model):
    """A program's request for a key. It expires after minutes. The key itself is never stored."""

    class Status(models.TextChoices):
        WAITING = "waiting"
        CONFIRMED = "confirmed"
        DENIED = "denied"
        REDEEMED = "redeemed"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    device_code_hash = models.CharField(max_length=64, unique=True)
    """SHA-256, hex. Only the program knows the code itself."""
    user_code = models.CharField(max_length=8, unique=True)
    """The code that the member compares and types, without its hyphen."""
    client_name = models.CharField(max_length=100)
    """The program's description of itself, such as the name of the computer."""
    ip = models.GenericIPAddressField(null=True)
    status = models.CharField(max_length=9, choices=Status.choices, default=Status.WAITING)
    tenant = models.ForeignKey("tenants.Tenant", null=True, on_delete=models.CASCADE, related_name="+")
    """The tenant of the member who confirmed."""
    user = models.ForeignKey("tenants.User", null=True, on_delete=models.CASCADE, related_name="+")
    environment = models.CharField(max_length=4, blank=True)
    """The environment that the member chose for the key."""
    created_at = models.DateTimeField(default=now, editable=False)
    expires_at = models.DateTimeField()

    class Meta:
        verbose_name = "device log-in"
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="device_login_by_end")]

    def __str__(self) -> str:
        return str(self.id)


# --- Invitations: an owner of a business invites a person to its team by a mailed link.


class InvitationQuerySet(TenantRows["Invitation"]):
    def open(self) -> Self:
        """Invitations that were neither accepted nor withdrawn nor sent again. Their links may have expired."""
        return self.filter(ended_at__isnull=True)


class Invitation(models.Model):
    """One mail with one link. Sending the invitation again ends this row and creates a new row, so the previous link
    stops working.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("tenants.Tenant", on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=10, choices=Role.choices)
    invited_by = models.ForeignKey("tenants.User", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=now, editable=False)
    ended_at = models.DateTimeField(null=True)
    """When the invitation was accepted, withdrawn or sent again."""

    objects = InvitationQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "email"], condition=Q(ended_at__isnull=True), name="one_open_invitation"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "-created_at"], name="invitation_by_tenant")]

    def __str__(self) -> str:
        return str(self.id)


class PlatformApp(models.Model):
    """A platform that acts for many tenants with its own keys (specification 2)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=now, editable=False)

    def __str__(self) -> str:
        return self.name


class TenantQuerySet(models.QuerySet["Tenant"]):
    def for_app(self, app_id: UUID) -> Self:
        """The tenants that a platform app created."""
        return self.filter(app_id=app_id)

    def closed(self) -> Self:
        """The tenants whose accounts were closed (`manage.py close_tenant`), as the audit log says. They stay
        suspended, so the entries of other tenants are not read.
        """
        ends = AuditEntry.objects.filter(
            tenant_id=OuterRef("pk"), action__in=("tenant.close", "tenant.reinstate")
        )
        suspended = self.filter(status=Tenant.Status.SUSPENDED)
        end = Subquery(ends.order_by("-id").values("action")[:1])
        return suspended.alias(end=end).filter(end="tenant.close")

    def with_waiting_since(self) -> Self:
        """Tenants with `waiting_since`: when they signed up or, after a rejection, applied again. Null for tenants that
        do not wait for approval. A correction of a waiting application does not change it.
        """
        again = AuditEntry.objects.filter(
            tenant_id=OuterRef("pk"), action="tenant.apply_again", details__before__status="rejected"
        )
        since = Coalesce(Subquery(again.order_by("-id").values("created_at")[:1]), F("created_at"))
        return self.annotate(waiting_since=Case(When(status=Tenant.Status.PENDING_APPROVAL, then=since)))

    def queue(self) -> Self:
        """The tenants that wait for approval, the longest first, with `waiting_since`."""
        waiting = self.filter(status=Tenant.Status.PENDING_APPROVAL)
        return waiting.with_waiting_since().order_by("waiting_since", "id")

    def sandboxes(self) -> Self:
        """The sandbox tenants that a platform can use, of which it may have a limited number."""
        return self.filter(sandbox=True).exclude(pk__in=Tenant.objects.closed())


class Tenant(models.Model):
    """One business (specification 2). The flow that completes a step of the checklist writes the step's column."""

    class Status(models.TextChoices):
        PENDING_APPROVAL = "pending_approval", "Pending approval"
        ACTIVE = "active"
        REJECTED = "rejected"
        SUSPENDED = "suspended"

    class Retention(models.IntegerChoices):
        DAYS_30 = 30
        DAYS_90 = 90
        DAYS_180 = 180
        DAYS_365 = 365

    class BillingStatus(models.TextChoices):
        TRIALING = "trialing"
        ACTIVE = "active"
        PAST_DUE = "past_due", "Past due"
        EXEMPT = "exempt"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200)
    app = models.ForeignKey(
        PlatformApp, null=True, blank=True, on_delete=models.PROTECT, related_name="tenants"
    )
    external_ref = models.CharField(max_length=255, null=True, blank=True)
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.PENDING_APPROVAL)
    sandbox = models.BooleanField(default=False)
    retention_days = models.PositiveSmallIntegerField(choices=Retention.choices, default=Retention.DAYS_90)
    billing_status = models.CharField(max_length=20, choices=BillingStatus.choices, null=True, blank=True)
    billing_email = models.EmailField(null=True, blank=True)
    trial_ends_at = models.DateTimeField(null=True, blank=True)
    past_due_since = models.DateTimeField(null=True, blank=True)
    billing_restricted = models.BooleanField(default=False)
    """Whether the tenant's bills are long overdue. The tenant can still send, but cannot add numbers
    (`tenant_status.py`).
    """
    created_at = models.DateTimeField(default=now, editable=False)

    number_connected = models.BooleanField(default=False)
    api_key_created = models.BooleanField(default=False)
    webhook_verified = models.BooleanField(default=False)
    test_message_sent = models.BooleanField(default=False)

    created_via = models.CharField(max_length=20, default="signup")
    contact_email = models.EmailField(null=True, blank=True)
    website = models.CharField(max_length=255, null=True, blank=True)
    tax_id = models.CharField(max_length=20, null=True, blank=True)
    tax_id_type = models.CharField(max_length=10, null=True, blank=True)
    email_domain = models.CharField(max_length=255, null=True, blank=True)
    flags = models.JSONField(default=list, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    rejected_reason = models.TextField(null=True, blank=True)
    suspended_reason = models.CharField(max_length=20, null=True, blank=True)

    objects = TenantQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["app", "external_ref", "sandbox"], name="tenant_external_ref_once_per_kind"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["status", "-id"], name="tenant_by_status"),
            models.Index(fields=["app", "-id"], name="tenant_by_app"),
        ]
        permissions: ClassVar = [("decide_tenant", "Can approve, reject, suspend and reinstate tenants")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_restricted(self) -> bool:
        """Whether the tenant may not add numbers. While billing is off, nobody could pay, so nobody is restricted."""
        return settings.BILLING_ENABLED and self.billing_restricted

    @property
    def checklist(self) -> dict[str, bool]:
        """The four booleans that the console shows as first steps."""
        return {
            "number_connected": self.number_connected,
            "api_key_created": self.api_key_created,
            "webhook_verified": self.webhook_verified,
            "test_message_sent": self.test_message_sent,
        }


class SignUp(models.Model):
    """A sign-up with the contents of its form. The link in its mail creates the user and the tenant.

    Every attempt is a separate row, so a stranger who signs up first with another person's address does not block that
    person. Some fields of the form are stored only here: evidence for the reviewer, and the postal address for
    invoices.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.OneToOneField(
        Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="sign_up"
    )
    email = models.EmailField()
    password = models.CharField(max_length=128, blank=True)
    """The hash of the password. Empty after the user is created."""
    company = models.CharField(max_length=200)
    website = models.CharField(max_length=255)
    tax_id_type = models.CharField(max_length=10)
    tax_id = models.CharField(max_length=20)
    address = models.CharField(max_length=500)
    city = models.CharField(max_length=100)
    state_code = models.CharField(max_length=2)
    """The state's two-digit GST code."""
    pin_code = models.CharField(max_length=6)
    phone = models.CharField(max_length=16)
    """The phone number in E.164 form."""
    ip = models.GenericIPAddressField(null=True, blank=True)
    agreed_texts = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()), blank=True)
    """The SHA-256 of each text that the form named (the terms and the privacy notice), by the text's name."""
    created_at = models.DateTimeField(default=now, editable=False)
    confirmed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "sign-up"
        indexes: ClassVar = [
            models.Index(fields=["email"], name="sign_up_by_email"),
            models.Index(fields=["ip", "-created_at"], name="sign_up_by_ip"),
        ]

    def __str__(self) -> str:
        return self.company


class EmailDomainRule(models.Model):
    """A decision of staff about an e-mail domain. It overrides the lists of free and disposable mail domains."""

    class Verdict(models.TextChoices):
        ALLOW = "allow"
        BLOCK = "block"

    domain = models.CharField(max_length=253, primary_key=True)
    verdict = models.CharField(max_length=5, choices=Verdict.choices)
    note = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(default=now, editable=False)

    class Meta:
        verbose_name = "email domain rule"

    def __str__(self) -> str:
        return f"{self.get_verdict_display()} {self.domain}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.domain = self.domain.strip().lower().rstrip(".")
        super().save(*args, **kwargs)


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Create a user who logs in with e-mail and password."""
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Create a staff member with all permissions."""
        return self.create_user(email, password, **{**fields, "is_staff": True, "is_superuser": True})

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").lower())


class Theme(models.TextChoices):
    """The colour scheme of the console's pages."""

    AUTO = "auto", "As the device"
    LIGHT = "light", "Light"
    DARK = "dark", "Dark"


class User(AbstractUser):
    """A login: a member of a tenant's team, or staff of the service."""

    username = None  # type: ignore[assignment]
    email = models.EmailField(unique=True)
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="users")
    role = models.CharField(
        max_length=10, choices=Role.choices, default=Role.OWNER, db_default=Role.OWNER.value
    )
    """The role decides what the user may read and change in the tenant (`gateway/roles.py`). The user who signed up is
    an owner.
    """

    name = models.CharField(max_length=100, blank=True, default="", db_default="")
    """The name shown beside the address. Empty until the user enters one."""
    time_zone = models.CharField(max_length=40, default="Asia/Kolkata", db_default="Asia/Kolkata")
    """The time zone in which pages show times to the user: a name of the IANA database."""
    theme = models.CharField(
        max_length=5, choices=Theme.choices, default=Theme.AUTO, db_default=Theme.AUTO.value
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects = UserManager()  # type: ignore[misc,assignment]

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.email = self.email.lower()
        super().save(*args, **kwargs)


def all_scopes() -> list[str]:
    """The default scopes of a key: every scope."""
    return [scope.value for scope in KeyScope]


class ApiKeyQuerySet(TenantRows["ApiKey"]):
    def for_app(self, app_id: UUID) -> Self:
        """The keys of a platform app itself."""
        return self.filter(app_id=app_id)

    def working(self) -> Self:
        """Keys that are neither revoked nor expired."""
        return self.filter(revoked_at__isnull=True).exclude(expires_at__lte=now())


class ApiKey(models.Model):
    """A tenant key or a platform (app) key. Only the SHA-256 of the key is stored (decision "Names")."""

    class Environment(models.TextChoices):
        LIVE = "live"
        TEST = "test"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="api_keys"
    )
    app = models.ForeignKey(
        PlatformApp, null=True, blank=True, on_delete=models.PROTECT, related_name="api_keys"
    )
    name = models.CharField(max_length=200)
    environment = models.CharField(max_length=4, choices=Environment.choices, default=Environment.LIVE)
    prefix = models.CharField(max_length=16)
    key_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=now, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    scopes = ArrayField(models.CharField(max_length=20), default=all_scopes, db_default=Value(all_scopes()))
    """The scopes of the key (`gateway.roles.KeyScope`)."""
    phone_number_ids = ArrayField(models.CharField(max_length=64), null=True, blank=True)
    """The numbers that the key is limited to. Null means all numbers of the tenant."""
    created_by_user_id = models.BigIntegerField(null=True, blank=True)
    """The member or staff who created the key. Not a foreign key, because the API key stays when the member leaves."""
    created_by_key_id = models.UUIDField(null=True, blank=True)
    """The key with which this key was created."""

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        permissions: ClassVar = [("revoke_apikey", "Can revoke any tenant's or platform app's API key")]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(tenant__isnull=False, app__isnull=True)
                | Q(tenant__isnull=True, app__isnull=False),
                name="key_of_tenant_or_app",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "-id"], name="key_by_tenant"),
            models.Index(fields=["app", "-id"], name="key_by_app", condition=Q(app__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"

    @property
    def opens_everything(self) -> bool:
        """Whether the key has every scope that a key of its environment can have."""
        return ALL_SCOPES - (LIVE_SCOPES if self.environment == "test" else set()) <= set(self.scopes)


class ConsoleSession(models.Model):
    """A console token, stored as a hash. It lasts 12 hours and ends when the user's password changes."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="console_sessions")
    token_hash = models.CharField(max_length=64, unique=True)
    password_fingerprint = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=now, editable=False)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.id)


class OutboundMail(models.Model):
    """A mail to send. A sent mail is deleted at once, or after a week with EMAIL_MODE log. A mail that is given up is
    deleted after a week.
    """

    id = models.BigAutoField(primary_key=True)
    to = models.EmailField()
    subject = models.CharField(max_length=300)
    text = models.TextField()
    html = models.TextField()
    created_at = models.DateTimeField(default=now, editable=False)
    sent_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    """When the next attempt is due. Null once the mail is sent or given up."""

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["to", "-id"], name="mail_by_address"),
            models.Index(
                fields=["next_attempt_at"], name="mail_due", condition=Q(next_attempt_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"Mail {self.pk}"


class MailAttachment(models.Model):
    """An attachment of an outbound mail."""

    mail = models.ForeignKey(OutboundMail, on_delete=models.CASCADE, related_name="attachments")
    name = models.CharField(max_length=100)
    content_type = models.CharField(max_length=100)
    content = models.BinaryField()

    def __str__(self) -> str:
        return self.name


class AuditEntry(models.Model):
    """An action of a user, a key or the gateway. A database trigger makes the table append-only. It has no foreign
    keys, so an entry outlives its subject.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField(null=True)
    actor_user_id = models.BigIntegerField(null=True)
    action = models.CharField(max_length=60)
    target_type = models.CharField(max_length=40)
    target_id = models.CharField(max_length=64)
    details = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    created_at = models.DateTimeField(default=now, editable=False)

    class Meta:
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [
            models.Index(fields=["tenant_id", "-id"], name="audit_by_tenant"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
        ]

    def __str__(self) -> str:
        return action_words(self.action)


class TenantNote(models.Model):
    """A note of staff about a tenant, visible to staff only. Notes are added, never changed."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="notes")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL)
    text = models.CharField(max_length=2000)
    created_at = models.DateTimeField(default=now, editable=False)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant", "-id"], name="note_by_tenant")]

    def __str__(self) -> str:
        return f"Note {self.pk}"


class ConnectedAppClient(models.Model):
    """An OAuth client that registered itself (RFC 7591), such as ChatGPT. It uses PKCE instead of a secret."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100)
    """The name that the client gave itself. A member can trust only the host of the redirect URI."""
    redirect_uris = ArrayField(models.CharField(max_length=500))
    ip = models.GenericIPAddressField(null=True)
    created_at = models.DateTimeField(default=now, editable=False)
    last_connected_at = models.DateTimeField(null=True)
    """When a member last connected the client. Null if nobody ever did."""

    def __str__(self) -> str:
        return self.name


class AppConnectionQuerySet(TenantRows["AppConnection"]):
    def working(self) -> Self:
        """Connections that have not expired and whose client has received tokens."""
        return self.filter(access_hash__isnull=False, expires_at__gt=now())


class AppConnection(models.Model):
    """A member's permission for a client. At first it has a code that lasts a minute, later an access token and a
    refresh token.

    Codes and tokens are stored as SHA-256, hex. A connection that ends is deleted, but the audit log still shows it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    client = models.ForeignKey(ConnectedAppClient, on_delete=models.CASCADE, related_name="connections")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    password_fingerprint = models.CharField(max_length=64)
    """A hash that changes with the member's password. A new password ends the connection."""
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    scopes = ArrayField(models.CharField(max_length=20))
    only_reads = models.BooleanField()
    redirect_uri = models.CharField(max_length=500)
    code_hash = models.CharField(max_length=64, unique=True)
    code_challenge = models.CharField(max_length=43)
    """Base64url of the SHA-256 of the client's verifier (PKCE, S256)."""
    access_hash = models.CharField(max_length=64, unique=True, null=True)
    """The hash of the access token. Null until the code is redeemed."""
    access_expires_at = models.DateTimeField(null=True)
    family_hash = models.CharField(max_length=64, unique=True, null=True)
    """The hash of the part that all refresh tokens of the connection share. It identifies the connection of a used
    token.
    """
    refresh_hash = models.CharField(max_length=64, null=True)
    created_at = models.DateTimeField(default=now, editable=False)
    last_used_at = models.DateTimeField(null=True)
    """When the client last received an access token."""
    expires_at = models.DateTimeField()
    """When the code expires. After the code is redeemed, when the connection expires."""

    objects = AppConnectionQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tenant", "-id"], name="app_connection_by_tenant"),
            models.Index(fields=["expires_at"], name="app_connection_by_end"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class Export(models.Model):
    """A file that a member or a key requested. It is written in the background (`console/exports.py`)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="exports")
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True)
    """The member who receives the mail. Null if a key requested the export, or if the member has left the tenant."""
    environment = models.CharField(max_length=4, choices=ApiKey.Environment.choices)
    kind = models.CharField(max_length=20)
    query = models.TextField()
    """The filter, as the query string of the page. For an export of one customer, the customer's id."""
    rows = models.PositiveIntegerField(null=True)
    """The number of rows. Null until the file is written."""
    leased_until = models.DateTimeField(null=True)
    """When the lease of the worker that writes the file ends. Null when no worker writes it."""
    created_at = models.DateTimeField(default=now, editable=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user"], condition=models.Q(rows__isnull=True), name="one_open_export_of_a_person"
            ),
            models.UniqueConstraint(
                fields=["tenant"],
                condition=models.Q(rows__isnull=True, kind__in=["account", "customer"]),
                name="one_open_export_of_data",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="export_by_age")]

    def __str__(self) -> str:
        return str(self.id)


class ExportPart(models.Model):
    """A compressed part of an export's file."""

    export = models.ForeignKey(Export, on_delete=models.CASCADE, related_name="parts")
    place = models.PositiveIntegerField()
    content = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["export", "place"], name="export_parts_in_order")
        ]

    def __str__(self) -> str:
        return f"{self.export_id} {self.place}"
