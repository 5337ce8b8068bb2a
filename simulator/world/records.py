"""Records of the simulator: accounts, numbers, tokens, codes, media, templates, messages.

Plain data, with rules that need only one record. `state.py` creates and finds records. `snapshot.py` saves the records
that must survive a restart.
"""

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

MANAGEMENT = "whatsapp_business_management"
MESSAGING = "whatsapp_business_messaging"
MANAGE_EVENTS = "whatsapp_business_manage_events"
MEDIA_TYPES = ("image", "video", "audio", "document", "sticker")
HEALTH_ENTITIES = ("PHONE_NUMBER", "WABA", "BUSINESS", "APP")
HEALTH_STATES = ("AVAILABLE", "LIMITED", "BLOCKED")
"""The states, from the best to the worst."""


@dataclass(slots=True)
class Number:
    """A business phone number (upstream fact 1.5)."""

    id: str
    waba_id: str
    digits: str
    display_phone_number: str
    verified_name: str
    quality_rating: str = "GREEN"
    messaging_limit_tier: str = "TIER_2K"
    throughput: str = "STANDARD"
    name_status: str = "APPROVED"
    code_verification_status: str = "VERIFIED"
    platform_type: str = "CLOUD_API"
    status: str = "CONNECTED"
    account_mode: str = "LIVE"
    is_on_biz_app: bool = False
    is_official_business_account: bool = False
    last_onboarded_time: str | None = None
    pin: str | None = None
    # Whether the number has two-step verification at another provider, which prevents its migration.
    locked_elsewhere: bool = False
    override_callback_uri: str | None = None
    override_verify_token: str | None = None
    profile: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    verification_code: str | None = None
    code_requests: list[float] = field(default_factory=list)
    registrations: list[float] = field(default_factory=list)
    pin_failures: int = 0
    allowed_recipients: list[str] | None = None
    synced: list[str] = field(default_factory=list)

    @property
    def registered(self) -> bool:
        """Whether the number may send, according to `platform_type` and `status`."""
        return self.platform_type == "CLOUD_API" and self.status == "CONNECTED"

    @property
    def rate(self) -> int:
        """The number's limit in messages a second (upstream fact 2.1)."""
        if self.is_on_biz_app:
            return 20
        return 1000 if self.throughput == "HIGH" else 80


@dataclass(slots=True)
class Template:
    """A message template in one language (upstream fact 1.3)."""

    id: str
    waba_id: str
    name: str
    language: str
    category: str
    components: list[dict[str, Any]]
    status: str = "PENDING"
    parameter_format: str = "POSITIONAL"
    message_send_ttl_seconds: int | None = None
    rejected_reason: str = "NONE"
    quality: str = "UNKNOWN"
    previous_category: str | None = None
    library_template_name: str | None = None
    edited_at: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Flow:
    """A flow of an account. `json` is its only file."""

    id: str
    waba_id: str
    name: str
    categories: list[str]
    status: str = "DRAFT"
    json: bytes = b""
    endpoint_uri: str | None = None
    updated_at: float = field(default_factory=time.time)


@dataclass(slots=True)
class Account:
    """A WhatsApp business account (WABA) with all of its objects."""

    waba_id: str
    name: str
    business_id: str
    currency: str = "INR"
    country: str = "IN"
    timezone_id: str = "71"
    account_review_status: str = "APPROVED"
    status: str = "ACTIVE"
    subscribed: bool = False
    locked: bool = False
    override_callback_uri: str | None = None
    override_verify_token: str | None = None
    numbers: list[str] = field(default_factory=list)
    # The state of each entity (HEALTH_ENTITIES), shown in `health_status` of the account and of its numbers.
    health: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Token:
    """An access token. Its rights are stored separately from what `debug_token` reports, because the two can differ."""

    value: str
    # The accounts to which the token gives access. None means all (the variant without `target_ids`, and the app's own
    # token).
    waba_ids: list[str] | None
    kind: str = "SYSTEM_USER"
    app_id: str = ""
    scopes: list[str] = field(default_factory=lambda: [MANAGEMENT, MESSAGING, "public_profile"])
    issued_at: int = field(default_factory=lambda: int(time.time()))
    # Unix time. 0 means never.
    expires_at: int = 0
    data_access_expires_at: int = 0
    invalidated: bool = False

    def opens(self, waba_id: str) -> bool:
        """Whether the token gives access to the account."""
        return self.waba_ids is None or waba_id in self.waba_ids

    @property
    def may_message(self) -> bool:
        """Whether the token allows sends and media."""
        return MESSAGING in self.scopes

    @property
    def may_manage(self) -> bool:
        """Whether the token allows management calls. The scope of newer tokens suffices too (upstream fact 0.8)."""
        return MANAGEMENT in self.scopes or MANAGE_EVENTS in self.scopes


@dataclass(slots=True)
class Code:
    """A single-use authorization code of the embedded sign-up."""

    value: str
    waba_id: str
    variant: str
    expires_at: float
    used: bool = False


@dataclass(slots=True)
class Media:
    """A stored file of the account whose number uploaded or received the file."""

    id: str
    waba_id: str
    phone_number_id: str
    mime_type: str
    filename: str | None
    sha256: bytes
    data: bytes
    expires_at: float
    is_received: bool = False
    """Whether a customer sent the file."""


@dataclass(slots=True)
class Upload:
    """A resumable upload. `handle` is set when all bytes have arrived."""

    key: str
    file_name: str
    file_type: str
    length: int
    owner: str
    """The account whose token created the upload."""
    data: bytearray = field(default_factory=bytearray)
    handle: str | None = None

    @property
    def signature(self) -> str:
        """The parameter `sig` in the session's URL."""
        return "AR" + hashlib.sha256(self.key.encode()).hexdigest()[:32]


@dataclass(slots=True)
class Message:
    """One message of a conversation, in either direction, as the phone page shows it."""

    id: str
    phone_number_id: str
    customer: str
    direction: str
    timestamp: float
    body: dict[str, Any]
    status: str
    # The text of a template with its parameters (`message_templates/checks.py`).
    rendered: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    reaction: str | None = None
    # The customer's later change: "edited" or "deleted".
    change: str | None = None
    size: int = 0
    """The approximate memory that the message takes, in bytes."""

    def view(self) -> dict[str, Any]:
        """The message as the control API shows it."""
        return {
            "id": self.id,
            "phone_number_id": self.phone_number_id,
            "customer": self.customer,
            "direction": self.direction,
            "timestamp": round(self.timestamp, 3),
            "status": self.status,
            "body": self.body,
            "rendered": self.rendered,
            "error": self.error,
            "reaction": self.reaction,
            "change": self.change,
        }
