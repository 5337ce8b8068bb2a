"""The schemas of the API. Generated from docs/openapi.json by `make sdks`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from typing_extensions import NotRequired, TypedDict


class AccountAlertData(TypedDict):
    entity_type: NotRequired[str]
    entity_id: NotRequired[int | str]
    alert_info: NotRequired[dict[str, Any]]
    field: str


class AccountAlertsEvent(TypedDict):
    """
    The event `account.alerts`.
    """

    id: str
    type: Literal["account.alerts"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: AccountAlertData
    raw: Any
    raw_path: str | None


class AccountCapabilityEvent(TypedDict):
    """
    The event `account.capability`.
    """

    id: str
    type: Literal["account.capability"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: dict[str, Any]
    raw: Any
    raw_path: str | None


class AccountSecurityData(TypedDict):
    display_phone_number: NotRequired[str]
    event: NotRequired[str]
    field: str


class AccountSecurityEvent(TypedDict):
    """
    The event `account.security`.
    """

    id: str
    type: Literal["account.security"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: AccountSecurityData
    raw: Any
    raw_path: str | None


class AccountUpdateData(TypedDict):
    event: NotRequired[str]
    waba_info: NotRequired[dict[str, Any]]
    field: str


class AccountUpdateEvent(TypedDict):
    """
    The event `account.update`.
    """

    id: str
    type: Literal["account.update"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: AccountUpdateData
    raw: Any
    raw_path: str | None


class AdminNumber(TypedDict):
    tenant_id: str
    tenant_name: str
    phone_number_id: str
    display_phone_number: str
    connection_state: Literal["pending", "connected", "disconnected"]
    quality_rating: str | None
    messaging_limit_tier: str | None
    last_event_at: str | None


class AnyApiKey(TypedDict):
    """
    A key with its owner, for staff.
    """

    id: str
    name: str
    environment: Literal["live", "test"]
    prefix: str
    created_at: str
    last_used_at: str | None
    expires_at: str | None
    revoked_at: str | None
    scopes: list[str]
    phone_number_ids: list[str] | None
    created_by_user_id: int | None
    created_by_key_id: str | None
    tenant_id: str | None
    app_id: str | None


class ApiKey(TypedDict):
    id: str
    name: str
    environment: Literal["live", "test"]
    prefix: str
    created_at: str
    last_used_at: str | None
    expires_at: str | None
    revoked_at: str | None
    scopes: list[str]
    phone_number_ids: list[str] | None
    created_by_user_id: int | None
    created_by_key_id: str | None


PhoneNumberId: TypeAlias = str


class ApiKeyRequest(TypedDict, closed=True):
    name: str
    environment: NotRequired[Literal["live", "test"]]
    expires_at: NotRequired[str | None]
    scopes: NotRequired[
        list[Literal["messages", "numbers", "templates", "webhooks", "events", "billing", "settings", "keys"]]
    ]
    phone_number_ids: NotRequired[list[PhoneNumberId] | None]


class App(TypedDict):
    id: str
    name: str


class AppData(TypedDict):
    """
    The sync of the contacts or of the chats in the WhatsApp Business app.
    """

    status: Literal["pending", "requested", "receiving", "completed", "declined", "expired", "failed"]
    progress: int
    received: int
    requested_at: str | None
    ends_at: str
    finished_at: str | None
    error_code: int | None


class AppKey(TypedDict):
    id: str
    app_id: str
    prefix: str
    key: str


class AppKeyRequest(TypedDict, closed=True):
    name: str
    environment: NotRequired[Literal["live", "test"]]
    expires_at: NotRequired[str | None]


class AppRequest(TypedDict, closed=True):
    name: str


class AppWithTenants(TypedDict):
    id: str
    name: str
    tenants: int


class Approved(TypedDict):
    id: str
    status: Literal["pending_approval", "active", "rejected", "suspended"]
    approved_at: str | None
    billing_status: Literal["trialing", "active", "past_due", "exempt", ""] | None
    trial_ends_at: str | None


class AttemptError(TypedDict):
    code: str | None
    reason: str | None
    message: str | None


class AudioContent(TypedDict):
    """
    The audio file: the `id` of an upload, or a public https `link`.
    """

    id: NotRequired[str]
    link: NotRequired[str]
    voice: NotRequired[bool]


class AuditEntry(TypedDict):
    id: int
    tenant_id: str | None
    actor_user_id: int | None
    action: str
    target_type: str
    target_id: str
    details: Any
    created_at: str


class BatchCompletedData(TypedDict):
    id: str
    status: str
    total: int
    accepted: int
    failed: int
    skipped: int
    rate_per_sec: int
    client_ref: str | None
    created_at: str
    started_at: str | None
    completed_at: str | None


class BatchCompletedEvent(TypedDict):
    """
    The event `batch.completed`.
    """

    id: str
    type: Literal["batch.completed"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: BatchCompletedData
    raw: Any
    raw_path: str | None


class BatchOutcomes(TypedDict):
    accepted: int
    sent: int
    delivered: int
    read: int
    failed: int


class BatchPlace(TypedDict):
    batch_id: str | None
    idx: int


class BatchSettings(TypedDict):
    """
    How many events one request may contain, and how long the first event waits.
    """

    events: int
    milliseconds: NotRequired[int]


class BatchTimeRequest(TypedDict, closed=True):
    send_at: NotRequired[str | None]


class BatchWarning(TypedDict):
    message: str
    count: int
    indexes: list[int]


class BilledNumber(TypedDict):
    phone_number_id: str
    display_phone_number: str
    active_since: str


class BillingHealth(TypedDict):
    provider_refuses_since: str | None
    notices_waiting: int
    payments_unknown: int


class BusinessProfile(TypedDict):
    about: NotRequired[str]
    address: NotRequired[str]
    description: NotRequired[str]
    email: NotRequired[str]
    websites: NotRequired[list[str]]
    vertical: NotRequired[str]
    messaging_product: NotRequired[str]
    profile_picture_handle: NotRequired[str]
    profile_picture_url: NotRequired[str]


class BusinessProfiles(TypedDict):
    data: list[BusinessProfile]


class Buyer(TypedDict):
    name: str
    gstin: str | None
    pan: str | None
    foreign_tax_id: str | None
    address: str | None
    state_code: str | None
    state: str | None
    country: str


class ChargeLine(TypedDict):
    description: str
    quantity: int
    unit_paise: int
    amount_paise: int


class Checklist(TypedDict):
    number_connected: bool
    api_key_created: bool
    webhook_verified: bool
    test_message_sent: bool


class ChosenReply(TypedDict):
    id: str
    title: str
    description: NotRequired[str]


class ConnectRequest(TypedDict, closed=True):
    waba_id: str
    access_token: NotRequired[str]
    code: NotRequired[str]


class ConnectSession(TypedDict):
    id: str
    url: str
    expires_at: str
    status: str
    return_url: str
    created_at: str
    completed_at: str | None
    waba_id: str | None
    phone_number_ids: list[str]
    error: Any


class ConnectSessionRequest(TypedDict, closed=True):
    return_url: str


class Connection(TypedDict):
    phone_number_id: str
    connection_state: Literal["pending", "connected", "disconnected"]
    connection_detail: str | None


class ConsoleSessionRequest(TypedDict, closed=True):
    email: str
    password: str
    otp: NotRequired[str]


class ConsoleUser(TypedDict):
    id: int
    email: str
    is_staff: bool


class Phone(TypedDict):
    phone: NotRequired[str]
    type: NotRequired[str]
    wa_id: NotRequired[str]


class Email(TypedDict):
    email: NotRequired[str]
    type: NotRequired[str]


class ContactName(TypedDict):
    formatted_name: NotRequired[str]
    first_name: NotRequired[str]
    last_name: NotRequired[str]
    middle_name: NotRequired[str]
    prefix: NotRequired[str]
    suffix: NotRequired[str]


class CreatedApiKey(TypedDict):
    id: str
    name: str
    environment: Literal["live", "test"]
    prefix: str
    key: str
    created_at: str
    last_used_at: str | None
    expires_at: str | None
    revoked_at: str | None
    scopes: list[str]
    phone_number_ids: list[str] | None
    created_by_user_id: int | None
    created_by_key_id: str | None


class CreatedConnectSession(TypedDict):
    id: str
    url: str
    expires_at: str
    status: str


class CreatedConsoleSession(TypedDict):
    expires_at: str
    user: ConsoleUser
    tenant_id: str | None
    token: str


class CreatedMandate(TypedDict):
    id: str
    status: str
    method: Literal["upi", "card", "emandate"]
    max_amount_paise: int
    authorization_url: str | None
    authorization_expires_at: str | None
    replaces: str | None


CustomerHours = TypedDict(
    "CustomerHours",
    {
        "from": int,
        "to": int,
    },
    closed=True,
)


class Deleted(TypedDict):
    id: str
    deleted: bool


class DeletedFlowEndpoint(TypedDict):
    phone_number_id: str
    deleted: bool


class Delivery(TypedDict):
    id: str
    event_id: str
    event_type: str
    attempts: int
    last_error: str | None
    last_http_status: int | None


class DeliveriesExhaustedData(TypedDict):
    """
    The service gave up deliveries to one of your endpoints. They are not tried again.
    """

    endpoint_id: str
    url: str
    uid: str | None
    count: int
    deliveries: list[Delivery]


class Delivery1(TypedDict):
    """
    A delivery. While it is held back, `last_error` names the reason and `next_attempt_at` the earliest attempt.
    """

    id: str
    event_id: str
    event_type: str
    endpoint_id: str
    status: Literal["pending", "delivered", "failed", "dead"]
    attempts: int
    last_http_status: int | None
    last_error: str | None
    last_response_ms: int | None
    next_attempt_at: str | None
    is_replay: bool
    replay_of: str | None


class DeliveryAttempt(TypedDict):
    """
    An attempt. The receiver's answers to the newest failed attempts are stored as long as the event's body.
    """

    at: str
    http_status: int | None
    ms: int
    error: str | None
    response_excerpt: str
    response_headers: dict[str, Any] | None
    response_body: str | None


class DeliveryCounts(TypedDict):
    """
    How many deliveries have each status.
    """

    pending: int
    delivered: int
    failed: int
    dead: int


class DeliveryWithLog(TypedDict):
    """
    A delivery. While it is held back, `last_error` names the reason and `next_attempt_at` the earliest attempt.
    """

    id: str
    event_id: str
    event_type: str
    endpoint_id: str
    status: Literal["pending", "delivered", "failed", "dead"]
    attempts: int
    last_http_status: int | None
    last_error: str | None
    last_response_ms: int | None
    next_attempt_at: str | None
    attempt_log: list[DeliveryAttempt]
    is_replay: bool
    replay_of: str | None


class DestinationSettings(TypedDict):
    """
    Where an endpoint sends events if it is not a webhook. Each kind has its own members (docs/destinations.md).
    """

    queue_url: NotRequired[str | None]
    region: NotRequired[str | None]
    access_key_id: NotRequired[str | None]
    secret_access_key: NotRequired[str | None]
    endpoint_url: NotRequired[str | None]
    bucket: NotRequired[str | None]
    prefix: NotRequired[str | None]
    bootstrap_servers: NotRequired[str | None]
    topic: NotRequired[str | None]
    security_protocol: NotRequired[str | None]
    sasl_mechanism: NotRequired[str | None]
    sasl_username: NotRequired[str | None]
    sasl_password: NotRequired[str | None]
    url: NotRequired[str | None]
    username: NotRequired[str | None]
    password: NotRequired[str | None]
    exchange: NotRequired[str | None]
    routing_key: NotRequired[str | None]


class DeviceCodeRequest(TypedDict, closed=True):
    device_code: str


class DeviceKey(TypedDict):
    id: str
    name: str
    environment: Literal["live", "test"]
    prefix: str
    key: str
    expires_at: str | None
    tenant_id: str | None
    tenant_name: str


class DeviceLogin(TypedDict):
    device_code: str
    user_code: str
    verification_url: str
    verification_url_complete: str
    expires_at: str
    interval_seconds: int


class DeviceLoginRequest(TypedDict, closed=True):
    client_name: str


class DocumentContent(TypedDict):
    """
    The document file: the `id` of an upload, or a public https `link`.
    """

    id: NotRequired[str]
    link: NotRequired[str]
    caption: NotRequired[str]
    filename: NotRequired[str]


class Text(TypedDict):
    """
    The text of the message.
    """

    body: NotRequired[str]


EchoedMessage = TypedDict(
    "EchoedMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "to_user_id": NotRequired[str],
        "id": str,
        "timestamp": NotRequired[str],
        "type": str,
        "text": NotRequired[Text],
    },
)


class EmbeddedSignupRequest(TypedDict, closed=True):
    code: str
    waba_id: str
    phone_number_id: str
    pin: NotRequired[str | None]


WabaId: TypeAlias = str


RetryScheduleItem: TypeAlias = int


class EndpointDisabledData(TypedDict):
    """
    The service disabled one of your endpoints. Nothing is sent to the endpoint until it passes the verify ping.
    """

    endpoint_id: str
    url: str
    uid: str | None
    since: str | None
    cause: Literal["gone", "failing"]


class Reason(TypedDict):
    """
    How the newest failed attempt ended; null when it is not known.
    """

    error: str | None
    http_status: int | None


class Waiting(TypedDict):
    """
    The deliveries that wait for the endpoint.
    """

    count: int
    oldest: str | None


class EndpointFailingData(TypedDict):
    """
    One of your endpoints has accepted no event for 15 minutes.
    """

    endpoint_id: str
    url: str
    uid: str | None
    since: str
    reason: Reason | None
    waiting: Waiting


class EndpointLastHour(TypedDict):
    attempted: int
    success_share: float | None
    p50_ms: int | None
    p95_ms: int | None


class EndpointReason(TypedDict):
    error: str | None
    http_status: int | None


class EndpointRecoveredData(TypedDict):
    """
    One of your endpoints had failed or was disabled, and now accepts events again.
    """

    endpoint_id: str
    url: str
    uid: str | None
    since: str


class EndpointWaiting(TypedDict):
    count: int
    oldest: str | None


class Erased(TypedDict):
    """
    How many rows of each kind were erased.
    """

    scheduled_messages: int
    opt_outs: int
    events: int
    media: int
    idempotency_answers: int
    read_marks: int
    export_files: int
    uploaded_files: int


class Erasure(TypedDict):
    """
    The receipt of an erasure. It does not name the customer.
    """

    id: str
    status: Literal["pending", "completed"]
    created_at: str
    completed_at: str | None
    customer_hash: str
    erased: Erased | None


class ErasureList(TypedDict):
    data: list[Erasure]
    next_cursor: str | None


ErrorCode: TypeAlias = Literal[
    "billing_disabled",
    "conflict",
    "forbidden",
    "headers_too_large",
    "idempotency_conflict",
    "internal_error",
    "invalid_request",
    "invoice_not_payable",
    "meta_unreachable",
    "method_not_allowed",
    "not_found",
    "number_not_connected",
    "payload_too_large",
    "payment_provider_refused",
    "payment_provider_unreachable",
    "rate_limited",
    "request_timeout",
    "service_unavailable",
    "tenant_not_approved",
    "tenant_suspended",
    "too_many_in_flight",
    "unauthorized",
    "unsupported_media_type",
    "uri_too_long",
    "webhook_verify_failed",
]


class Profile1(TypedDict):
    """
    The customer's profile.
    """

    name: NotRequired[str]
    username: NotRequired[str]


class EventContact(TypedDict):
    """
    A customer whom the event concerns.
    """

    profile: NotRequired[Profile1]
    wa_id: NotRequired[str]
    user_id: NotRequired[str]
    parent_user_id: NotRequired[str]


class EventMetadata(TypedDict):
    """
    Your number that the event concerns.
    """

    display_phone_number: NotRequired[str]
    phone_number_id: NotRequired[str]


EventType: TypeAlias = Literal[
    "message.inbound",
    "message.status",
    "message.error",
    "message.echo",
    "message.outbound",
    "message.history",
    "user.preferences",
    "customer.opt_out",
    "batch.completed",
    "template.status",
    "template.quality",
    "template.category",
    "number.quality",
    "number.name",
    "number.connection",
    "account.update",
    "account.alerts",
    "account.capability",
    "account.security",
    "token.expiring",
    "token.invalid",
    "webhook.failing",
    "webhook.disabled",
    "webhook.recovered",
    "webhook.delivery.exhausted",
    "meta.other",
]


class Example(TypedDict):
    """
    The example in the form that was sent, with `"test": true`, and the endpoint's answer.
    """

    event: dict[str, Any]
    delivered: bool
    http_status: int | None
    response_ms: int
    error: str | None
    body_excerpt: str


class ExampleRequest(TypedDict, closed=True):
    event_type: EventType


class Export(TypedDict):
    """
    A file that is written in the background and kept for 7 days.
    """

    id: str
    kind: Literal["account", "customer"]
    status: Literal["pending", "completed"]
    lines: int | None
    created_at: str


class ExportRequest(TypedDict, closed=True):
    customer_id: NotRequired[str]


class FilterPreviewRequest(TypedDict, closed=True):
    filter: dict[str, Any]


class FlowEndpoint(TypedDict):
    """
    Where the data requests of a number's Flows are answered.
    """

    phone_number_id: str
    url: str
    endpoint_uri: str
    secret_prefix: str
    previous_secret_expires_at: str | None
    key_uploaded_at: str | None
    last_request_at: str | None
    last_error: str | None
    created_at: str
    secret: NotRequired[str]


class FlowEndpointRequest(TypedDict, closed=True):
    url: str


class Health(TypedDict):
    ok: bool
    sha: str
    db: Literal["ok", "error"]


class HealthReason(TypedDict):
    code: int | None
    description: str | None
    what_to_do: str | None


class ImageContent(TypedDict):
    """
    The image file: the `id` of an upload, or a public https `link`.
    """

    id: NotRequired[str]
    link: NotRequired[str]
    caption: NotRequired[str]


class ImportedNumber(TypedDict):
    phone_number_id: str
    display_phone_number: str
    connection_state: Literal["pending", "connected", "disconnected"]
    connection_detail: str | None


Context = TypedDict(
    "Context",
    {
        "from": NotRequired[str],
        "id": NotRequired[str],
        "forwarded": NotRequired[bool],
        "frequently_forwarded": NotRequired[bool],
    },
)


class Referral(TypedDict):
    """
    The advertisement or post from which the customer wrote the message.
    """

    source_url: NotRequired[str]
    source_id: NotRequired[str]
    source_type: NotRequired[str]
    headline: NotRequired[str]
    body: NotRequired[str]
    media_type: NotRequired[str]
    ctwa_clid: NotRequired[str]


class Button(TypedDict):
    """
    The quick reply button of a template that the customer pressed.
    """

    payload: str
    text: str


class NfmReply(TypedDict):
    """
    The customer's answers in a Flow.
    """

    name: NotRequired[str]
    body: NotRequired[str]
    response_json: NotRequired[str]
    response: NotRequired[dict[str, Any]]


class Interactive(TypedDict):
    """
    The customer's answer to an interactive message.
    """

    type: str
    button_reply: NotRequired[ChosenReply]
    list_reply: NotRequired[ChosenReply]
    nfm_reply: NotRequired[NfmReply]


class Location(TypedDict):
    """
    The place that the message names.
    """

    latitude: float
    longitude: float
    name: NotRequired[str]
    address: NotRequired[str]
    url: NotRequired[str]


class InboundMedia(TypedDict):
    """
    A file. Download it with `GET /v1/media/{media_id}`. WhatsApp's own `url` needs a token that only the service has.
    """

    id: str
    mime_type: str
    sha256: str
    caption: NotRequired[str]
    filename: NotRequired[str]
    voice: NotRequired[bool]
    animated: NotRequired[bool]


class Order(TypedDict):
    """
    The products that the customer ordered.
    """

    catalog_id: str
    text: NotRequired[str]
    product_items: list[dict[str, Any]]


class Reaction(TypedDict):
    """
    A reaction to a message.
    """

    message_id: str
    emoji: NotRequired[str]


class Text1(TypedDict):
    """
    The text of the message.
    """

    body: str


class InteractiveText(TypedDict):
    text: str


Interval = TypedDict(
    "Interval",
    {
        "from": str,
        "to": str,
    },
)


class InvoiceCredit(TypedDict):
    id: str
    number: str
    issued_at: str
    total_paise: int
    reason: str


class InvoiceLine(TypedDict):
    description: str
    sac: str
    quantity: int
    unit_paise: int
    amount_paise: int
    gst_percent: int
    plan_version: str | None


class InvoiceSummary(TypedDict):
    id: str
    number: str
    period: str
    status: str
    issued_at: str
    due_at: str
    paid_at: str | None
    currency: str
    active_numbers: int
    total_paise: int
    amount_due_paise: int


class InvoicedNumber(TypedDict):
    phone_number_id: str
    display_phone_number: str
    connected_seconds: int
    intervals: list[Interval]


class LastMail(TypedDict):
    to: str
    subject: str
    links: list[str]
    sent_at: str


class LastReferral(TypedDict):
    """
    The ad or post that last led the customer to write, and the customer's message.
    """

    source_type: str | None
    source_id: str | None
    ctwa_clid: str | None
    message_id: str
    at: str | None


class LastSnapshot(TypedDict):
    period: str
    active_numbers: int
    total_paise: int


class LastTemplate(TypedDict):
    """
    The template that was last sent to the customer.
    """

    id: str
    name: str
    language: str | None
    status: Literal["accepted", "unknown", "received", "sent", "delivered", "read", "failed"]
    created_at: str


class LedgerEndpoint(TypedDict):
    endpoint_id: str
    accepted: int
    delivered: int
    waiting: int
    dead: int
    expired: int
    balanced: bool


class LedgerEvents(TypedDict):
    accepted: int
    with_endpoint: int
    without_endpoint: int


class LedgerSends(TypedDict):
    accepted: int
    failed: int
    outcome_unknown: int
    refused: int | None
    unanswered: int | None
    doubled: int


class ListRow(TypedDict):
    id: str
    title: str
    description: NotRequired[str]


class ListSection(TypedDict):
    title: NotRequired[str]
    rows: NotRequired[list[ListRow]]
    product_items: NotRequired[list[dict[str, Any]]]


class Live(TypedDict):
    ok: bool
    sha: str


class LocationContent(TypedDict):
    latitude: float | str
    longitude: float | str
    name: NotRequired[str]
    address: NotRequired[str]


class Mandate(TypedDict):
    id: str
    status: str
    method: Literal["upi", "card", "emandate"]
    instrument: str | None
    max_amount_paise: int
    expires_at: str | None


class MandateRequest(TypedDict, closed=True):
    return_url: NotRequired[str | None]
    method: NotRequired[Literal["upi", "card", "emandate"]]
    max_amount_paise: NotRequired[int]


class MediaDescription(TypedDict):
    """
    WhatsApp's description of the file. Its `url` needs a token that only the service has.
    """

    id: NotRequired[str]
    messaging_product: NotRequired[str]
    mime_type: NotRequired[str]
    sha256: NotRequired[str]
    file_size: NotRequired[int | str]
    url: NotRequired[str]


MediaRequest = TypedDict(
    "MediaRequest",
    {
        "file": bytes,
        "type": NotRequired[str],
        "from": str,
    },
)


class MessageError(TypedDict):
    """
    WhatsApp's error. Past retention, only `code` is left. `hint` and the page at `doc_url` explain the code.
    """

    code: int | None
    title: str | None
    message: str | None
    details: str | None
    hint: str | None
    doc_url: str | None


class MessageEvent(TypedDict):
    """
    An event of the message, with all its deliveries.
    """

    id: str
    type: EventType
    created_at: str
    deliveries: list[Delivery1]


class MessageFigures(TypedDict):
    """
    Messages that were sent or received in the hour or day, and their current statuses.
    """

    start: str
    phone_number_id: NotRequired[str]
    template: NotRequired[str]
    direction: NotRequired[Literal["inbound", "outbound"]]
    received: int
    sent: int
    delivered: int
    read: int
    failed: int
    failed_by_code: dict[str, int]
    unknown: int
    pricing: dict[str, int]
    referrals: dict[str, int]
    median_seconds_to_delivered: int | None
    median_seconds_to_read: int | None


class MessageReport(TypedDict):
    """
    A status that WhatsApp reported. Reports are in the order in which they were stored.
    """

    status: str | None
    at: str
    wa_id: str | None
    user_id: str | None
    error: MessageError | None
    event_id: str


class Pricing1(TypedDict):
    """
    What WhatsApp reported about the price of the message; absent when it reported nothing.
    """

    billable: NotRequired[bool]
    pricing_model: NotRequired[str]
    type: NotRequired[str]
    category: NotRequired[str]


class MetaOtherEvent(TypedDict):
    """
    The event `meta.other`.
    """

    id: str
    type: Literal["meta.other"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: dict[str, Any]
    raw: Any
    raw_path: str | None


class MigrateRequest(TypedDict, closed=True):
    waba_id: str
    cc: str
    phone_number: str


class MirrorHealth(TypedDict):
    last_run_at: str | None
    keys_rewritten: int


class NumberAppData(TypedDict):
    """
    The syncs of a number's WhatsApp Business app.
    """

    phone_number_id: str
    coexistence: bool
    contacts: AppData | None
    history: AppData | None


class NumberAtUpstream(TypedDict):
    id: NotRequired[str]


NumberConnectionData = TypedDict(
    "NumberConnectionData",
    {
        "phone_number_id": str,
        "from": str,
        "to": str,
        "detail": str | None,
    },
)


class NumberConnectionEvent(TypedDict):
    """
    The event `number.connection`.
    """

    id: str
    type: Literal["number.connection"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: NumberConnectionData
    raw: Any
    raw_path: str | None


class NumberNameData(TypedDict):
    display_phone_number: NotRequired[str]
    decision: NotRequired[str]
    requested_verified_name: NotRequired[str]
    rejection_reason: NotRequired[str | None]
    field: str


class NumberNameEvent(TypedDict):
    """
    The event `number.name`.
    """

    id: str
    type: Literal["number.name"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: NumberNameData
    raw: Any
    raw_path: str | None


class NumberQualityData(TypedDict):
    display_phone_number: NotRequired[str]
    event: NotRequired[str]
    old_limit: NotRequired[str]
    current_limit: NotRequired[str]
    max_daily_conversations_per_business: NotRequired[str | int]
    field: str


class NumberQualityEvent(TypedDict):
    """
    The event `number.quality`.
    """

    id: str
    type: Literal["number.quality"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: NumberQualityData
    raw: Any
    raw_path: str | None


class OAuth2Settings(TypedDict):
    """
    Client credentials: requests carry a token that your authorisation server issues.
    """

    token_url: str
    client_id: str
    client_secret: str
    scope: NotRequired[str | None]


Message1 = TypedDict(
    "Message1",
    {
        "id": str,
        "type": str,
        "from": NotRequired[str],
        "timestamp": NotRequired[str],
    },
)


class OldMessageData(TypedDict):
    messaging_product: NotRequired[str]
    metadata: NotRequired[EventMetadata]
    message: Message1


class OptOutData(TypedDict):
    opted_out: bool
    source: Literal["whatsapp", "stop_word"]
    at: str
    wa_id: str | None
    user_id: str | None


class OptedOutCustomer(TypedDict):
    """
    A customer who opted out of a number's marketing messages.
    """

    phone_number_id: str
    wa_id: str | None
    user_id: str | None
    opted_out_at: str
    opted_out_source: Literal["whatsapp", "stop_word"]


class OptedOutCustomerList(TypedDict):
    data: list[OptedOutCustomer]
    next_cursor: str | None


class OutboundMessageData(TypedDict):
    request: dict[str, Any]
    response: dict[str, Any] | None
    http_status: int | None
    batch_id: NotRequired[str | None]
    idx: NotRequired[int | None]


class PartitionsThrough(TypedDict):
    """
    The end of each table's last partition: the first moment without a partition.
    """

    api_requests: str | None
    events: str | None
    event_payloads: str | None
    webhook_deliveries: str | None
    messages: str | None


class PaymentAttempt(TypedDict):
    id: str
    kind: str
    status: str


class PhoneNumber(TypedDict):
    phone_number_id: str
    display_phone_number: str
    verified_name: str | None
    waba_id: str
    connection_state: Literal["pending", "connected", "disconnected"]
    connection_detail: str | None
    quality_rating: str | None
    messaging_limit_tier: str | None
    throughput_level: str | None
    name_status: str | None
    registered_at: str | None
    last_event_at: str | None


class Plan(TypedDict):
    code: str
    currency: str
    first_number_paise: int
    additional_number_paise: int
    gst_percent: int
    tax_inclusive: bool
    included_numbers: int
    due_days: int
    version: str | None


class PreviewedEvent(TypedDict):
    id: str
    type: EventType
    created_at: str
    passes: bool


class Pricing(TypedDict):
    """
    What WhatsApp charges for the message, as the message's statuses report it.
    """

    category: str | None
    type: str | None
    billable: bool | None


class Profile(TypedDict):
    legal_name: str | None
    tax_id_type: str | None
    tax_id: str | None
    state_code: str | None
    address: str | None
    city: str | None
    pin: str | None
    phone: str | None
    country: str
    tds_percent: int
    complete: bool
    missing: list[str]


class ProfileRequest(TypedDict, closed=True):
    legal_name: NotRequired[str]
    address: NotRequired[str]
    city: NotRequired[str]
    pin: NotRequired[str]
    state_code: NotRequired[
        Literal[
            "01",
            "02",
            "03",
            "04",
            "05",
            "06",
            "07",
            "08",
            "09",
            "10",
            "11",
            "12",
            "13",
            "14",
            "15",
            "16",
            "17",
            "18",
            "19",
            "20",
            "21",
            "22",
            "23",
            "24",
            "26",
            "27",
            "29",
            "30",
            "31",
            "32",
            "33",
            "34",
            "35",
            "36",
            "37",
            "38",
        ]
    ]
    tax_id: NotRequired[str]
    phone: NotRequired[str]
    country: NotRequired[str]
    tds_percent: NotRequired[Literal[0, 2, 10]]


class Queued(TypedDict):
    queued: int


class QuotedMessage(TypedDict):
    """
    The message that this message replies to.
    """

    message_id: str


class ReactionContent(TypedDict):
    message_id: str
    emoji: str


ReactionMessage = TypedDict(
    "ReactionMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["reaction"],
        "reaction": ReactionContent,
    },
)


class TypingIndicator(TypedDict):
    """
    Shows the customer that you are typing. The indicator ends with your next message, at the latest after 25 seconds.
    """

    type: Literal["text"]


ReadMark = TypedDict(
    "ReadMark",
    {
        "from": str,
        "message_id": str,
        "typing_indicator": NotRequired[TypingIndicator],
    },
)


class Ready(TypedDict):
    ok: bool
    sha: str
    db: Literal["ok", "error"]
    migrations: Literal["ok", "error"]
    partitions: Literal["ok", "error"]


class RedeemedDeviceLogin(TypedDict):
    status: Literal["waiting", "confirmed", "denied", "expired"]
    api_key: DeviceKey | None


class ReferralModel(TypedDict):
    """
    The ad or post that led the customer to write a message.
    """

    source_type: str | None
    source_id: str | None
    ctwa_clid: str | None


class RefreshedPhoneNumber(TypedDict):
    phone_number_id: str
    display_phone_number: str
    verified_name: str | None
    waba_id: str
    connection_state: Literal["pending", "connected", "disconnected"]
    connection_detail: str | None
    quality_rating: str | None
    messaging_limit_tier: str | None
    throughput_level: str | None
    name_status: str | None
    registered_at: str | None
    last_event_at: str | None
    meta_snapshot: NotRequired[Any]


class RegisterRequest(TypedDict, closed=True):
    pin: NotRequired[str | None]


class Reinstated(TypedDict):
    id: str
    status: Literal["pending_approval", "active", "rejected", "suspended"]


class RejectRequest(TypedDict, closed=True):
    reason: str


class Rejected(TypedDict):
    id: str
    status: Literal["pending_approval", "active", "rejected", "suspended"]
    rejected_reason: str | None


class ReleasedAccount(TypedDict):
    waba_id: str
    phone_number_ids: list[str]
    released: bool


class ReleasedNumber(TypedDict):
    phone_number_id: str
    released: bool


class ReplayPreview(TypedDict):
    """
    Preview of a replay: the number of deliveries, the time of the oldest, and the minimum duration of
    the release in seconds.
    """

    count: int
    oldest: str | None
    expected_seconds: int


ReplayRequest = TypedDict(
    "ReplayRequest",
    {
        "from": str,
        "to": str,
        "status": NotRequired[list[Literal["pending", "delivered", "failed", "dead", "missed"]]],
        "event_types": NotRequired[
            list[
                Literal[
                    "*",
                    "message.inbound",
                    "message.status",
                    "message.error",
                    "message.echo",
                    "message.outbound",
                    "message.history",
                    "user.preferences",
                    "customer.opt_out",
                    "batch.completed",
                    "template.status",
                    "template.quality",
                    "template.category",
                    "number.quality",
                    "number.name",
                    "number.connection",
                    "account.update",
                    "account.alerts",
                    "account.capability",
                    "account.security",
                    "token.expiring",
                    "token.invalid",
                    "webhook.failing",
                    "webhook.disabled",
                    "webhook.recovered",
                    "webhook.delivery.exhausted",
                    "meta.other",
                ]
            ]
            | None
        ],
        "preview": NotRequired[bool],
    },
    closed=True,
)


class Replayed(TypedDict):
    """
    A delivery. While it is held back, `last_error` names the reason and `next_attempt_at` the earliest attempt.
    """

    id: str
    status: Literal["pending", "delivered", "failed", "dead"]
    attempts: int
    last_http_status: int | None
    last_response_ms: int | None
    is_replay: bool
    replay_of: str | None


class Reply(TypedDict):
    """
    The id and title of the button.
    """

    id: str
    title: str


class ReplyButton(TypedDict):
    type: Literal["reply"]
    reply: Reply


class Request(TypedDict):
    """
    A call of the API.
    """

    id: str
    created_at: str
    method: str
    route: str | None
    status: int
    error_code: str | None
    key_prefix: str | None
    environment: str
    service_ms: float
    upstream_ms: float


class RequestCodeRequest(TypedDict, closed=True):
    code_method: Literal["SMS", "VOICE"]
    language: str


class RequestList(TypedDict):
    data: list[Request]
    next_cursor: str | None


class ReturnUrlRequest(TypedDict, closed=True):
    return_url: NotRequired[str | None]


class RevokedKey(TypedDict):
    id: str
    revoked_at: str


class RotateSecretRequest(TypedDict, closed=True):
    overlap_hours: NotRequired[int]
    secret: NotRequired[str]


class RotatedKey(TypedDict):
    id: str
    name: str
    environment: Literal["live", "test"]
    prefix: str
    key: str
    replaces: str
    old_key_expires_at: str


class RotatedSecret(TypedDict):
    id: str
    secret: str
    secret_prefix: str
    previous_secret_expires_at: str | None


class SampleHandle(TypedDict):
    h: str


class SampleRequest(TypedDict):
    file: bytes
    type: NotRequired[str]
    waba_id: NotRequired[str]


ScheduledAudioMessage = TypedDict(
    "ScheduledAudioMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["audio"],
        "audio": AudioContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


ScheduledDocumentMessage = TypedDict(
    "ScheduledDocumentMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["document"],
        "document": DocumentContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


ScheduledImageMessage = TypedDict(
    "ScheduledImageMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["image"],
        "image": ImageContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


ScheduledLocationMessage = TypedDict(
    "ScheduledLocationMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["location"],
        "location": LocationContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


ScheduledReactionMessage = TypedDict(
    "ScheduledReactionMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["reaction"],
        "reaction": ReactionContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


class Seller(TypedDict):
    name: str
    gstin: str
    address: str
    state_code: str


class SendAtRequest(TypedDict, closed=True):
    send_at: NotRequired[str]


class Contact(TypedDict):
    input: NotRequired[str]
    wa_id: NotRequired[str]
    user_id: NotRequired[str]


class Message2(TypedDict):
    id: str
    message_status: NotRequired[str]
    group_id: NotRequired[str]


class SentMessage(TypedDict):
    """
    WhatsApp accepted the message. `message.status` events report whether it arrives.
    """

    messaging_product: NotRequired[str]
    contacts: NotRequired[list[Contact]]
    messages: list[Message2]


class SentTemplate(TypedDict):
    name: str
    language: str | None


class Error(TypedDict):
    """
    What went wrong.
    """

    code: ErrorCode
    message: str
    details: dict[str, Any] | None
    hint: str
    doc_url: str


class ServiceError(TypedDict):
    source: str
    error: Error
    request_id: str | None


class SignedUpNumber(TypedDict):
    phone_number_id: str
    display_phone_number: str
    verified_name: str | None
    waba_id: str
    connection_state: Literal["pending", "connected", "disconnected"]
    connection_detail: str | None
    quality_rating: str | None
    messaging_limit_tier: str | None
    throughput_level: str | None
    name_status: str | None
    registered_at: str | None
    last_event_at: str | None
    pin: NotRequired[str]


class StickerContent(TypedDict):
    """
    The sticker file: the `id` of an upload, or a public https `link`.
    """

    id: NotRequired[str]
    link: NotRequired[str]


StickerMessage = TypedDict(
    "StickerMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["sticker"],
        "sticker": StickerContent,
    },
)


StoredCustomerHours = TypedDict(
    "StoredCustomerHours",
    {
        "from": int,
        "to": int,
    },
)


class SubmittedTemplate(TypedDict):
    id: str
    status: NotRequired[str]
    category: NotRequired[str]


class SuspendRequest(TypedDict, closed=True):
    reason: Literal["abuse", "admin"]
    note: NotRequired[str]


class Suspended(TypedDict):
    id: str
    status: Literal["pending_approval", "active", "rejected", "suspended"]
    suspended_reason: str | None


class Sync(TypedDict):
    synced: int
    added: int
    updated: int
    removed: int
    failed: NotRequired[list[str]]


class Tax(TypedDict):
    type: str
    percent: float
    amount_paise: int


class Template(TypedDict):
    """
    WhatsApp's template object as it was last received. It can lack these members and can have others.
    """

    id: str
    name: str
    language: NotRequired[str]
    status: NotRequired[str]
    category: NotRequired[str]
    components: NotRequired[list[dict[str, Any]]]


class TemplateButton(TypedDict):
    type: str
    text: NotRequired[str]
    url: NotRequired[str]
    phone_number: NotRequired[str]
    example: NotRequired[Any]
    otp_type: NotRequired[str]


class TemplateCategoryData(TypedDict):
    message_template_id: NotRequired[int | str]
    message_template_name: NotRequired[str]
    message_template_language: NotRequired[str]
    previous_category: NotRequired[str]
    new_category: NotRequired[str]
    correct_category: NotRequired[str]
    field: str


class TemplateCategoryEvent(TypedDict):
    """
    The event `template.category`.
    """

    id: str
    type: Literal["template.category"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: TemplateCategoryData
    raw: Any
    raw_path: str | None


class TemplateComponent(TypedDict):
    type: str
    format: NotRequired[str]
    text: NotRequired[str]
    example: NotRequired[dict[str, Any]]
    buttons: NotRequired[list[TemplateButton]]
    cards: NotRequired[list[dict[str, Any]]]
    add_security_recommendation: NotRequired[bool]
    code_expiration_minutes: NotRequired[int]


class Language(TypedDict):
    """
    The language of the template, as an object such as `{"code": "en_US"}`.
    """

    code: str
    policy: NotRequired[str]


class TemplateEdit(TypedDict):
    category: NotRequired[str]
    components: NotRequired[list[TemplateComponent]]
    parameter_format: NotRequired[str]
    message_send_ttl_seconds: NotRequired[int]


class Datum(TypedDict):
    id: NotRequired[str]
    name: NotRequired[str]
    language: NotRequired[str]
    category: NotRequired[str]
    topic: NotRequired[str]
    usecase: NotRequired[str]
    body: NotRequired[str]


class TemplateLibrary(TypedDict):
    data: list[Datum]
    paging: NotRequired[dict[str, Any]]


class TemplateQualityData(TypedDict):
    previous_quality_score: NotRequired[str]
    new_quality_score: NotRequired[str]
    message_template_id: NotRequired[int | str]
    message_template_name: NotRequired[str]
    message_template_language: NotRequired[str]
    field: str


class TemplateQualityEvent(TypedDict):
    """
    The event `template.quality`.
    """

    id: str
    type: Literal["template.quality"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: TemplateQualityData
    raw: Any
    raw_path: str | None


class TemplateStatusData(TypedDict):
    event: NotRequired[str]
    message_template_id: NotRequired[int | str]
    message_template_name: NotRequired[str]
    message_template_language: NotRequired[str]
    message_template_category: NotRequired[str]
    reason: NotRequired[str | None]
    rejection_info: NotRequired[dict[str, Any]]
    field: str


class TemplateStatusEvent(TypedDict):
    """
    The event `template.status`.
    """

    id: str
    type: Literal["template.status"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: TemplateStatusData
    raw: Any
    raw_path: str | None


class Tenant(TypedDict):
    id: str
    name: str
    external_ref: str | None
    status: Literal["pending_approval", "active", "rejected", "suspended"]
    sandbox: bool
    retention_days: Literal[30, 90, 180, 365]
    billing_status: Literal["trialing", "active", "past_due", "exempt", ""] | None
    trial_ends_at: str | None
    created_at: str
    checklist: Checklist
    billing_email: str | None


class TenantChangeRequest(TypedDict, closed=True):
    name: NotRequired[str]
    billing_email: NotRequired[str | None]
    retention_days: NotRequired[Literal[30, 90, 180, 365]]


class TenantCreateRequest(TypedDict, closed=True):
    name: str
    external_ref: NotRequired[str | None]
    retention_days: NotRequired[Literal[30, 90, 180, 365]]


class TestCall(TypedDict):
    id: str
    phone_number_id: str
    customer: str
    is_incoming: bool
    is_accepted: bool


class TestCallActionRequest(TypedDict, closed=True):
    call_id: str
    action: Literal["hang_up", "accept", "reject"]


TestCallRequest = TypedDict(
    "TestCallRequest",
    {
        "from": str,
        "phone_number_id": NotRequired[str],
        "name": NotRequired[str],
    },
    closed=True,
)


class TestEchoRequest(TypedDict, closed=True):
    phone_number_id: NotRequired[str]
    to: str
    text: str


class TestInbound(TypedDict):
    id: str
    phone_number_id: str
    customer: str


TestInboundRequest = TypedDict(
    "TestInboundRequest",
    {
        "from": str,
        "phone_number_id": NotRequired[str],
        "type": NotRequired[str],
        "text": NotRequired[Any],
        "name": NotRequired[str],
        "username": NotRequired[str],
        "identity": NotRequired[Literal["both", "phone", "user_id"]],
        "referral": NotRequired[Any],
        "context": NotRequired[Any],
    },
)


class TestMessage(TypedDict):
    id: str
    phone_number_id: str
    customer: str
    direction: str
    status: str | None
    body: dict[str, Any]
    reaction: str | None
    change: str | None


class TestNumberEvent(TypedDict):
    phone_number_id: str
    quality_rating: str
    messaging_limit_tier: str
    throughput_level: str
    name_status: str


class TestNumberEventRequest(TypedDict, closed=True):
    phone_number_id: NotRequired[str]
    event: Literal[
        "FLAGGED",
        "UNFLAGGED",
        "UPGRADE",
        "DOWNGRADE",
        "THROUGHPUT_UPGRADE",
        "NAME_APPROVED",
        "NAME_REJECTED",
        "PIN_CHANGED",
        "APP_REMOVED",
        "APP_RECONNECTED",
    ]


class TestNumberRequest(TypedDict, closed=True):
    coexistence: NotRequired[bool]


class TestPreference(TypedDict):
    phone_number_id: str
    customer: str
    value: str


TestPreferenceRequest = TypedDict(
    "TestPreferenceRequest",
    {
        "from": str,
        "phone_number_id": NotRequired[str],
        "value": Literal["stop", "resume"],
    },
    closed=True,
)


class TestRecipient(TypedDict):
    to: str
    behaviour: str
    code: int | None


class TestStatus(TypedDict):
    id: str
    status: str


class TestStatusRequest(TypedDict, closed=True):
    message_id: str
    status: Literal["sent", "delivered", "read", "played", "failed"]
    code: NotRequired[int]


class TestTemplate(TypedDict):
    id: str
    name: str
    language: str
    status: str
    category: str
    quality: str


class TestTemplateRequest(TypedDict, closed=True):
    """
    One decision about a template.
    """

    template_id: str
    event: NotRequired[
        Literal[
            "APPROVED",
            "REJECTED",
            "PENDING",
            "PAUSED",
            "DISABLED",
            "FLAGGED",
            "IN_APPEAL",
            "REINSTATED",
            "PENDING_DELETION",
            "DELETED",
            "LOCKED",
            "UNLOCKED",
            "ARCHIVED",
            "UNARCHIVED",
            "LIMIT_EXCEEDED",
        ]
    ]
    reason: NotRequired[
        Literal[
            "NONE",
            "ABUSIVE_CONTENT",
            "CATEGORY_NOT_AVAILABLE",
            "INCORRECT_CATEGORY",
            "INVALID_FORMAT",
            "PROMOTIONAL",
            "SCAM",
            "TAG_CONTENT_MISMATCH",
        ]
    ]
    quality: NotRequired[Literal["UNKNOWN", "GREEN", "YELLOW", "RED"]]
    category: NotRequired[Literal["AUTHENTICATION", "MARKETING", "UTILITY"]]
    correct_category: NotRequired[Literal["AUTHENTICATION", "MARKETING", "UTILITY"]]


class TestText(TypedDict):
    text: str
    behaviour: str


class TextContent(TypedDict):
    body: str
    preview_url: NotRequired[bool]


TextMessage = TypedDict(
    "TextMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["text"],
        "text": TextContent,
    },
)


class TlsSettings(TypedDict):
    """
    The client certificate and the CA for connections to the endpoint.
    """

    client_certificate: NotRequired[str | None]
    client_key: NotRequired[str | None]
    ca: NotRequired[str | None]


class TokenData(TypedDict):
    waba_id: str
    expires_at: str | None


class TokenExpiringEvent(TypedDict):
    """
    The event `token.expiring`.
    """

    id: str
    type: Literal["token.expiring"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: TokenData
    raw: Any
    raw_path: str | None


class TokenInvalidEvent(TypedDict):
    """
    The event `token.invalid`.
    """

    id: str
    type: Literal["token.invalid"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: TokenData
    raw: Any
    raw_path: str | None


class TokensHealth(TypedDict):
    expiring: int
    invalid: int


class TwoStepRequest(TypedDict, closed=True):
    pin: str


class UploadedMedia(TypedDict):
    id: str


class Error1(TypedDict):
    """
    The error, byte for byte as Meta wrote it.
    """

    message: NotRequired[str]
    type: NotRequired[str]
    code: NotRequired[int]
    error_subcode: NotRequired[int]
    error_data: NotRequired[Any]
    fbtrace_id: NotRequired[str]


class UpstreamError(TypedDict):
    """
    An error in WhatsApp's answer. `error` is WhatsApp's own; the service adds the other members.
    """

    source: Literal["meta"]
    hint: NotRequired[str]
    doc_url: NotRequired[str]
    request_id: NotRequired[str | None]
    error: NotRequired[Error1]


class ErrorData(TypedDict):
    """
    Details of the error, in Meta's own form.
    """

    details: NotRequired[str]


class UpstreamProblem(TypedDict):
    """
    An error as WhatsApp describes it.
    """

    code: int
    title: NotRequired[str]
    message: NotRequired[str]
    error_data: NotRequired[ErrorData]
    href: NotRequired[str]


class UpstreamSuccess(TypedDict):
    success: bool


class Usage(TypedDict):
    tenant_id: str
    name: str
    external_ref: str | None
    sent: int
    received: int
    statuses: int
    events: int
    deliveries: int
    delivered: int


class UsageList(TypedDict):
    data: list[Usage]
    next_cursor: str | None


class Preference(TypedDict):
    """
    The customer's decision.
    """

    wa_id: NotRequired[str]
    user_id: NotRequired[str]
    detail: NotRequired[str]
    category: NotRequired[str]
    value: NotRequired[str]
    timestamp: NotRequired[int]


class UserPreferenceData(TypedDict):
    messaging_product: NotRequired[str]
    metadata: NotRequired[EventMetadata]
    contacts: NotRequired[list[EventContact]]
    preference: Preference


class UserPreferencesEvent(TypedDict):
    """
    The event `user.preferences`.
    """

    id: str
    type: Literal["user.preferences"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: UserPreferenceData
    raw: Any
    raw_path: str | None


class Verified(TypedDict):
    id: str
    status: Literal["pending", "active", "paused", "disabled"]
    verified_at: str
    response_ms: int


class VerifyCodeRequest(TypedDict, closed=True):
    code: str


class VerifyPing(TypedDict):
    """
    The verify ping. Answer it 2xx with the challenge, as plain text or as `{"challenge": "…"}`.
    """

    type: Literal["webhook.verify"]
    challenge: str


class VideoContent(TypedDict):
    """
    The video file: the `id` of an upload, or a public https `link`.
    """

    id: NotRequired[str]
    link: NotRequired[str]
    caption: NotRequired[str]


VideoMessage = TypedDict(
    "VideoMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["video"],
        "video": VideoContent,
    },
)


class WebhookDeliveryExhaustedEvent(TypedDict):
    """
    The event `webhook.delivery.exhausted`.
    """

    id: str
    type: Literal["webhook.delivery.exhausted"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: DeliveriesExhaustedData
    raw: Any
    raw_path: str | None


class WebhookDisabledEvent(TypedDict):
    """
    The event `webhook.disabled`.
    """

    id: str
    type: Literal["webhook.disabled"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: EndpointDisabledData
    raw: Any
    raw_path: str | None


class WebhookFailingEvent(TypedDict):
    """
    The event `webhook.failing`.
    """

    id: str
    type: Literal["webhook.failing"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: EndpointFailingData
    raw: Any
    raw_path: str | None


class WebhookFigures(TypedDict):
    """
    Deliveries of the hour's or day's events, without replays.
    """

    start: str
    delivered: int
    failed: int
    open: int
    p95_ms: int | None


class WebhookRecoveredEvent(TypedDict):
    """
    The event `webhook.recovered`.
    """

    id: str
    type: Literal["webhook.recovered"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: EndpointRecoveredData
    raw: Any
    raw_path: str | None


class AdminTenant(TypedDict):
    """
    The admin view of a tenant (specification 2).
    """

    id: str
    name: str
    external_ref: str | None
    status: Literal["pending_approval", "active", "rejected", "suspended"]
    sandbox: bool
    retention_days: Literal[30, 90, 180, 365]
    billing_status: Literal["trialing", "active", "past_due", "exempt", ""] | None
    trial_ends_at: str | None
    created_at: str
    checklist: Checklist
    billing_email: str | None
    created_via: str
    contact_email: str | None
    website: str | None
    tax_id: str | None
    tax_id_type: str | None
    email_domain: str | None
    flags: Any
    approved_at: str | None
    rejected_reason: str | None
    suspended_reason: str | None


class Analytics(TypedDict):
    messages: list[MessageFigures]
    webhooks: list[WebhookFigures]
    as_of: str
    pending_hours: int


class Attempt(TypedDict):
    id: str
    kind: str
    status: str
    scheduled_for: str | None
    completed_at: str | None
    error: AttemptError | None


AudioMessage = TypedDict(
    "AudioMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["audio"],
        "audio": AudioContent,
    },
)


class Batch(TypedDict):
    id: str
    status: Literal["queued", "completed", "cancelled"]
    total: int
    accepted: int
    failed: int
    rate_per_sec: int
    client_ref: str | None
    waiting_for: Literal["number_not_connected", "number_released", "tenant_suspended", "scheduled"] | None
    send_at: str | None
    customer_hours: StoredCustomerHours | None
    skip_opted_out: bool
    created_at: str
    started_at: str | None
    completed_at: str | None


BatchAudioMessage = TypedDict(
    "BatchAudioMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["audio"],
        "audio": AudioContent,
        "message_ref": NotRequired[str],
    },
)


class BatchDetails(TypedDict):
    id: str
    status: Literal["queued", "completed", "cancelled"]
    total: int
    accepted: int
    failed: int
    rate_per_sec: int
    client_ref: str | None
    waiting_for: Literal["number_not_connected", "number_released", "tenant_suspended", "scheduled"] | None
    send_at: str | None
    customer_hours: StoredCustomerHours | None
    skip_opted_out: bool
    created_at: str
    started_at: str | None
    completed_at: str | None
    outcomes: BatchOutcomes


BatchDocumentMessage = TypedDict(
    "BatchDocumentMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["document"],
        "document": DocumentContent,
        "message_ref": NotRequired[str],
    },
)


BatchImageMessage = TypedDict(
    "BatchImageMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["image"],
        "image": ImageContent,
        "message_ref": NotRequired[str],
    },
)


class BatchItem(TypedDict):
    idx: int
    status: Literal["pending", "accepted", "failed", "skipped"]
    message_ref: str | None
    http_status: int | None
    wamid: str | None
    response: dict[str, Any] | None
    event_id: str | None
    sent_at: str | None
    duplicate_of: BatchPlace | None
    skip_reason: Literal["opted_out", "message_ref", "batch_ended"] | None


class BatchItemList(TypedDict):
    data: list[BatchItem]
    next_cursor: str | None


class BatchList(TypedDict):
    data: list[Batch]
    next_cursor: str | None


BatchLocationMessage = TypedDict(
    "BatchLocationMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["location"],
        "location": LocationContent,
        "message_ref": NotRequired[str],
    },
)


BatchReactionMessage = TypedDict(
    "BatchReactionMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["reaction"],
        "reaction": ReactionContent,
        "message_ref": NotRequired[str],
    },
)


BatchStickerMessage = TypedDict(
    "BatchStickerMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["sticker"],
        "sticker": StickerContent,
        "message_ref": NotRequired[str],
    },
)


BatchTextMessage = TypedDict(
    "BatchTextMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["text"],
        "text": TextContent,
        "message_ref": NotRequired[str],
    },
)


BatchVideoMessage = TypedDict(
    "BatchVideoMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["video"],
        "video": VideoContent,
        "message_ref": NotRequired[str],
    },
)


class BilledTenant(TypedDict):
    tenant_id: str
    name: str
    billing_status: Literal["trialing", "active", "past_due", "exempt"] | None
    past_due_since: str | None
    last_snapshot: LastSnapshot | None
    open_invoices: int


class ConnectedAccount(TypedDict):
    waba_id: str
    numbers: list[ImportedNumber]
    held_elsewhere: list[str]


class ConsoleSession(TypedDict):
    expires_at: str
    user: ConsoleUser
    tenant_id: str | None


class ContactCard(TypedDict):
    name: ContactName
    phones: NotRequired[list[Phone]]
    emails: NotRequired[list[Email]]
    addresses: NotRequired[list[dict[str, Any]]]
    urls: NotRequired[list[dict[str, Any]]]
    org: NotRequired[dict[str, Any]]
    birthday: NotRequired[str]


ContactCards: TypeAlias = list[ContactCard]
"""
The contact cards, at most 257.
"""


ContactsMessage = TypedDict(
    "ContactsMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["contacts"],
        "contacts": ContactCards,
    },
)


class CreatedBatch(TypedDict):
    id: str
    status: Literal["queued", "completed", "cancelled"]
    total: int
    accepted: int
    failed: int
    rate_per_sec: int
    client_ref: str | None
    waiting_for: Literal["number_not_connected", "number_released", "tenant_suspended", "scheduled"] | None
    send_at: str | None
    customer_hours: StoredCustomerHours | None
    skip_opted_out: bool
    created_at: str
    started_at: str | None
    completed_at: str | None
    warnings: list[BatchWarning]


class CreatedEndpoint(TypedDict):
    """
    An endpoint with its secret. Only the answer to the creation of the endpoint contains the secret.
    """

    id: str
    environment: Literal["live", "test"]
    kind: Literal["webhook", "inbox", "sqs", "s3", "kafka", "rabbitmq"]
    url: str
    format: Literal["envelope", "meta"]
    description: str
    event_types: list[str]
    waba_ids: list[str] | None
    phone_number_ids: list[str] | None
    statuses: list[str] | None
    filter: dict[str, Any] | None
    uid: str | None
    metadata: dict[str, str]
    headers: dict[str, str]
    timeout_seconds: int | None
    rate_per_second: int | None
    ordered: bool
    keep_answers: bool
    exhausted_mail_threshold: int | None
    retry_schedule: list[int] | None
    tls: TlsSettings | None
    oauth2: OAuth2Settings | None
    asymmetric_signature: bool
    destination: DestinationSettings | None
    public_key: str | None
    batch: BatchSettings | None
    quiet_seconds: int | None
    status: Literal["pending", "active", "paused", "disabled"]
    verified_at: str | None
    secret: str
    secret_prefix: str
    previous_secret_expires_at: str | None
    last_success_at: str | None
    consecutive_failures: int


class Customer(TypedDict):
    """
    A customer of a number: ids, newest messages, service window and opt-out.
    """

    phone_number_id: str
    wa_id: str | None
    user_id: str | None
    username: str | None
    last_inbound_at: str | None
    last_inbound_id: str | None
    window_open: bool
    window_open_until: str | None
    last_outbound_at: str | None
    last_template: LastTemplate | None
    last_referral: LastReferral | None
    opted_out: bool
    opted_out_at: str | None
    opted_out_source: Literal["whatsapp", "stop_word"] | None


class CustomerOptOutEvent(TypedDict):
    """
    The event `customer.opt_out`.
    """

    id: str
    type: Literal["customer.opt_out"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: OptOutData
    raw: Any
    raw_path: str | None


DocumentMessage = TypedDict(
    "DocumentMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["document"],
        "document": DocumentContent,
    },
)


class EchoedMessageData(TypedDict):
    """
    A message that was sent from the WhatsApp Business app.
    """

    messaging_product: NotRequired[str]
    metadata: NotRequired[EventMetadata]
    contacts: NotRequired[list[EventContact]]
    message: EchoedMessage


class Endpoint(TypedDict):
    id: str
    environment: Literal["live", "test"]
    kind: Literal["webhook", "inbox", "sqs", "s3", "kafka", "rabbitmq"]
    url: str
    format: Literal["envelope", "meta"]
    description: str
    event_types: list[str]
    waba_ids: list[str] | None
    phone_number_ids: list[str] | None
    statuses: list[str] | None
    filter: dict[str, Any] | None
    uid: str | None
    metadata: dict[str, str]
    headers: dict[str, str]
    timeout_seconds: int | None
    rate_per_second: int | None
    ordered: bool
    keep_answers: bool
    exhausted_mail_threshold: int | None
    retry_schedule: list[int] | None
    tls: TlsSettings | None
    oauth2: OAuth2Settings | None
    asymmetric_signature: bool
    destination: DestinationSettings | None
    public_key: str | None
    batch: BatchSettings | None
    quiet_seconds: int | None
    status: Literal["pending", "active", "paused", "disabled"]
    verified_at: str | None
    secret_prefix: str
    previous_secret_expires_at: str | None
    last_success_at: str | None
    consecutive_failures: int


class EndpointChangeRequest(TypedDict, closed=True):
    """
    The members that both the creation and the change of an endpoint accept.
    """

    waba_ids: NotRequired[list[WabaId] | None]
    phone_number_ids: NotRequired[list[PhoneNumberId] | None]
    statuses: NotRequired[list[Literal["sent", "delivered", "read", "played", "failed", "deleted"]] | None]
    filter: NotRequired[dict[str, Any] | None]
    headers: NotRequired[dict[str, Any] | None]
    timeout_seconds: NotRequired[int | None]
    rate_per_second: NotRequired[int | None]
    ordered: NotRequired[bool]
    keep_answers: NotRequired[bool]
    exhausted_mail_threshold: NotRequired[int | None]
    retry_schedule: NotRequired[list[RetryScheduleItem] | None]
    tls: NotRequired[TlsSettings | None]
    oauth2: NotRequired[OAuth2Settings | None]
    asymmetric_signature: NotRequired[bool]
    batch: NotRequired[BatchSettings | None]
    quiet_seconds: NotRequired[int | None]
    destination: NotRequired[DestinationSettings]
    uid: NotRequired[str | None]
    metadata: NotRequired[dict[str, str]]
    format: NotRequired[Literal["envelope", "meta"]]
    verify_token: NotRequired[str]
    url: NotRequired[str]
    description: NotRequired[str]
    event_types: NotRequired[
        list[
            Literal[
                "*",
                "message.inbound",
                "message.status",
                "message.error",
                "message.echo",
                "message.outbound",
                "message.history",
                "user.preferences",
                "customer.opt_out",
                "batch.completed",
                "template.status",
                "template.quality",
                "template.category",
                "number.quality",
                "number.name",
                "number.connection",
                "account.update",
                "account.alerts",
                "account.capability",
                "account.security",
                "token.expiring",
                "token.invalid",
                "webhook.failing",
                "webhook.disabled",
                "webhook.recovered",
                "webhook.delivery.exhausted",
                "meta.other",
            ]
        ]
    ]
    status: NotRequired[Literal["active", "paused"]]


class EndpointHealth(TypedDict):
    """
    Why an endpoint's deliveries wait, until when, and how it answered in the last hour.
    """

    state: Literal["healthy", "failing", "circuit_open"]
    since: str | None
    reason: EndpointReason | None
    retry_at: str | None
    waiting: EndpointWaiting
    last_hour: EndpointLastHour


class EndpointRequest(TypedDict, closed=True):
    """
    The members that both the creation and the change of an endpoint accept.
    """

    waba_ids: NotRequired[list[WabaId] | None]
    phone_number_ids: NotRequired[list[PhoneNumberId] | None]
    statuses: NotRequired[list[Literal["sent", "delivered", "read", "played", "failed", "deleted"]] | None]
    filter: NotRequired[dict[str, Any] | None]
    headers: NotRequired[dict[str, Any] | None]
    timeout_seconds: NotRequired[int | None]
    rate_per_second: NotRequired[int | None]
    ordered: NotRequired[bool]
    keep_answers: NotRequired[bool]
    exhausted_mail_threshold: NotRequired[int | None]
    retry_schedule: NotRequired[list[RetryScheduleItem] | None]
    tls: NotRequired[TlsSettings | None]
    oauth2: NotRequired[OAuth2Settings | None]
    asymmetric_signature: NotRequired[bool]
    batch: NotRequired[BatchSettings | None]
    quiet_seconds: NotRequired[int | None]
    destination: NotRequired[DestinationSettings]
    uid: NotRequired[str | None]
    metadata: NotRequired[dict[str, str]]
    format: NotRequired[Literal["envelope", "meta"]]
    verify_token: NotRequired[str]
    kind: NotRequired[Literal["webhook", "inbox", "sqs", "s3", "kafka", "rabbitmq"]]
    url: NotRequired[str]
    description: NotRequired[str]
    event_types: NotRequired[
        list[
            Literal[
                "*",
                "message.inbound",
                "message.status",
                "message.error",
                "message.echo",
                "message.outbound",
                "message.history",
                "user.preferences",
                "customer.opt_out",
                "batch.completed",
                "template.status",
                "template.quality",
                "template.category",
                "number.quality",
                "number.name",
                "number.connection",
                "account.update",
                "account.alerts",
                "account.capability",
                "account.security",
                "token.expiring",
                "token.invalid",
                "webhook.failing",
                "webhook.disabled",
                "webhook.recovered",
                "webhook.delivery.exhausted",
                "meta.other",
            ]
        ]
    ]
    secret: NotRequired[str]
    status: NotRequired[Literal["pending"]]


class EndpointWithHealth(TypedDict):
    """
    An endpoint with its health, for the answer about a single endpoint.
    """

    id: str
    environment: Literal["live", "test"]
    kind: Literal["webhook", "inbox", "sqs", "s3", "kafka", "rabbitmq"]
    url: str
    format: Literal["envelope", "meta"]
    description: str
    event_types: list[str]
    waba_ids: list[str] | None
    phone_number_ids: list[str] | None
    statuses: list[str] | None
    filter: dict[str, Any] | None
    uid: str | None
    metadata: dict[str, str]
    headers: dict[str, str]
    timeout_seconds: int | None
    rate_per_second: int | None
    ordered: bool
    keep_answers: bool
    exhausted_mail_threshold: int | None
    retry_schedule: list[int] | None
    tls: TlsSettings | None
    oauth2: OAuth2Settings | None
    asymmetric_signature: bool
    destination: DestinationSettings | None
    public_key: str | None
    batch: BatchSettings | None
    quiet_seconds: int | None
    status: Literal["pending", "active", "paused", "disabled"]
    verified_at: str | None
    secret_prefix: str
    previous_secret_expires_at: str | None
    last_success_at: str | None
    consecutive_failures: int
    health: EndpointHealth


class EventSummary(TypedDict):
    """
    The envelope without `data` and `raw`, with the state of the event's message and deliveries.
    """

    id: str
    type: EventType
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    raw_path: str | None
    direction: Literal["inbound", "outbound"] | None
    status: str | None
    error_code: int | None
    payload_available: bool
    deliveries: DeliveryCounts


class FilterPreview(TypedDict):
    """
    The result of a filter for the endpoint's recent events.
    """

    checked: int
    passed: int
    hints: list[str]
    events: list[PreviewedEvent]


class HealthEntity(TypedDict):
    entity_type: str | None
    id: str | None
    can_send_message: str | None
    reasons: list[HealthReason]


class HealthReport(TypedDict):
    """
    The state of the service. Each part of the service adds its own members.
    """

    partitions_through: PartitionsThrough
    kv_reconcile: MirrorHealth
    retries_due: int
    oldest_due_retry_at: str | None
    dead_24h: int
    endpoints_circuit_open: int
    endpoints_secret_unreadable: int
    tokens: TokensHealth
    billing: BillingHealth


ImageMessage = TypedDict(
    "ImageMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["image"],
        "image": ImageContent,
    },
)


InboundAudioMessage = TypedDict(
    "InboundAudioMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["audio"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "audio": InboundMedia,
    },
)


InboundButtonMessage = TypedDict(
    "InboundButtonMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["button"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "button": Button,
    },
)


InboundContactsMessage = TypedDict(
    "InboundContactsMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["contacts"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "contacts": list[dict[str, Any]],
    },
)


InboundDocumentMessage = TypedDict(
    "InboundDocumentMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["document"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "document": InboundMedia,
    },
)


InboundImageMessage = TypedDict(
    "InboundImageMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["image"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "image": InboundMedia,
    },
)


InboundInteractiveMessage = TypedDict(
    "InboundInteractiveMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["interactive"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "interactive": Interactive,
    },
)


InboundLocationMessage = TypedDict(
    "InboundLocationMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["location"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "location": Location,
    },
)


InboundOrderMessage = TypedDict(
    "InboundOrderMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["order"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "order": Order,
    },
)


InboundReactionMessage = TypedDict(
    "InboundReactionMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["reaction"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "reaction": Reaction,
    },
)


InboundStickerMessage = TypedDict(
    "InboundStickerMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["sticker"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "sticker": InboundMedia,
    },
)


InboundSystemMessage = TypedDict(
    "InboundSystemMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["system"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "system": dict[str, Any],
    },
)


InboundTextMessage = TypedDict(
    "InboundTextMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["text"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "text": Text1,
    },
)


InboundVideoMessage = TypedDict(
    "InboundVideoMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["video"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
        "video": InboundMedia,
    },
)


class InteractiveAction(TypedDict):
    name: NotRequired[str]
    button: NotRequired[str]
    buttons: NotRequired[list[ReplyButton]]
    sections: NotRequired[list[ListSection]]
    cards: NotRequired[list[dict[str, Any]]]
    parameters: NotRequired[dict[str, Any]]
    catalog_id: NotRequired[str]
    product_retailer_id: NotRequired[str]


class InteractiveHeader(TypedDict):
    type: str
    text: NotRequired[str]
    image: NotRequired[ImageContent]
    video: NotRequired[VideoContent]
    document: NotRequired[DocumentContent]


class Invoice(TypedDict):
    id: str
    number: str
    period: str
    status: str
    issued_at: str
    due_at: str
    paid_at: str | None
    currency: str
    active_numbers: int
    total_paise: int
    amount_due_paise: int
    seller: Seller
    buyer: Buyer
    place_of_supply: str
    supply_type: str
    endorsement: str
    replaces: str | None
    reverse_charge: bool
    numbers: list[InvoicedNumber]
    lines: list[InvoiceLine]
    subtotal_paise: int
    taxes: list[Tax]
    round_off_paise: int
    total_in_words: str
    amount_paid_paise: int
    tds_paise: int
    credited_paise: int
    credit_notes: list[InvoiceCredit]
    attempts: list[Attempt]
    irn: str | None


class Ledger(TypedDict):
    day: str
    hour: int | None
    events: LedgerEvents
    endpoints: list[LedgerEndpoint]
    sends: LedgerSends
    balanced: bool


LocationMessage = TypedDict(
    "LocationMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["location"],
        "location": LocationContent,
    },
)


class Message(TypedDict):
    """
    A message's progress, without its content.
    """

    id: str
    wamid: str | None
    direction: Literal["inbound", "outbound"]
    status: Literal["accepted", "unknown", "received", "sent", "delivered", "read", "failed"]
    error_code: int | None
    waba_id: str | None
    phone_number_id: str | None
    wa_id: str | None
    user_id: str | None
    type: str | None
    template: SentTemplate | None
    batch_id: str | None
    idx: int | None
    event_id: str | None
    pricing: Pricing | None
    referral: ReferralModel | None
    is_history: bool
    service_ms: int | None
    upstream_ms: int | None
    created_at: str
    accepted_at: str | None
    sent_at: str | None
    delivered_at: str | None
    read_at: str | None
    failed_at: str | None


class MessageEchoEvent(TypedDict):
    """
    The event `message.echo`.
    """

    id: str
    type: Literal["message.echo"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str
    display_phone_number: str | None
    wamid: str
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: EchoedMessageData
    raw: Any
    raw_path: str | None


class MessageErrorData(TypedDict):
    messaging_product: NotRequired[str]
    metadata: NotRequired[EventMetadata]
    error: UpstreamProblem


class MessageErrorEvent(TypedDict):
    """
    The event `message.error`.
    """

    id: str
    type: Literal["message.error"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: MessageErrorData
    raw: Any
    raw_path: str | None


class MessageHistoryEvent(TypedDict):
    """
    The event `message.history`.
    """

    id: str
    type: Literal["message.history"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str | None
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: OldMessageData
    raw: Any
    raw_path: str | None


class MessageList(TypedDict):
    data: list[Message]
    next_cursor: str | None


class MessageOutboundEvent(TypedDict):
    """
    The event `message.outbound`.
    """

    id: str
    type: Literal["message.outbound"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str
    display_phone_number: str | None
    wamid: str | None
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: OutboundMessageData
    raw: Any
    raw_path: str | None


class MessageStatus(TypedDict):
    id: str
    status: str
    timestamp: NotRequired[str]
    recipient_id: NotRequired[str]
    recipient_user_id: NotRequired[str]
    biz_opaque_callback_data: NotRequired[str]
    conversation: NotRequired[dict[str, Any]]
    pricing: NotRequired[Pricing1]
    errors: NotRequired[list[UpstreamProblem]]


class MessageStatusData(TypedDict):
    messaging_product: NotRequired[str]
    metadata: NotRequired[EventMetadata]
    contacts: NotRequired[list[EventContact]]
    status: MessageStatus


class MessageStatusEvent(TypedDict):
    """
    The event `message.status`.
    """

    id: str
    type: Literal["message.status"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str
    display_phone_number: str | None
    wamid: str
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: MessageStatusData
    raw: Any
    raw_path: str | None


MessageTemplate = TypedDict(
    "MessageTemplate",
    {
        "name": str,
        "language": str,
        "category": str,
        "parameter_format": NotRequired[str],
        "components": NotRequired[list[TemplateComponent]],
        "message_send_ttl_seconds": NotRequired[int],
        "library_template_name": NotRequired[str],
        "waba_id": NotRequired[str],
        "from": NotRequired[str],
    },
)


class NextCharge(TypedDict):
    period: str
    invoice_on: str
    numbers: int
    lines: list[ChargeLine]
    taxes: list[Tax]
    subtotal_paise: int
    tax_paise: int
    total_paise: int
    estimate: bool


class NumberHealth(TypedDict):
    phone_number_id: str
    connection_state: Literal["pending", "connected", "disconnected"]
    connection_detail: str | None
    can_send_message: str | None
    entities: list[HealthEntity]
    checked_at: str


OneMessage = TypedDict(
    "OneMessage",
    {
        "id": str,
        "wamid": str | None,
        "direction": Literal["inbound", "outbound"],
        "status": Literal["accepted", "unknown", "received", "sent", "delivered", "read", "failed"],
        "error_code": int | None,
        "waba_id": str | None,
        "phone_number_id": str | None,
        "wa_id": str | None,
        "user_id": str | None,
        "type": str | None,
        "template": SentTemplate | None,
        "batch_id": str | None,
        "idx": int | None,
        "event_id": str | None,
        "pricing": Pricing | None,
        "referral": ReferralModel | None,
        "is_history": bool,
        "service_ms": int | None,
        "upstream_ms": int | None,
        "created_at": str,
        "accepted_at": str | None,
        "sent_at": str | None,
        "delivered_at": str | None,
        "read_at": str | None,
        "failed_at": str | None,
        "from": str | None,
        "to": str | None,
        "error": MessageError | None,
        "payload_available": bool,
        "request": dict[str, Any] | None,
        "response": dict[str, Any] | None,
        "message": dict[str, Any] | None,
        "statuses": list[MessageReport],
        "events": list[MessageEvent],
    },
)


OtherInboundMessage = TypedDict(
    "OtherInboundMessage",
    {
        "from": NotRequired[str],
        "from_user_id": NotRequired[str],
        "id": str,
        "timestamp": str,
        "type": Literal["edit", "revoke", "request_welcome", "unsupported", "unknown"],
        "errors": NotRequired[list[UpstreamProblem]],
        "context": NotRequired[Context],
        "referral": NotRequired[Referral],
    },
)


class Payment(TypedDict):
    id: str
    status: str
    attempt: PaymentAttempt
    payment_url: str
    expires_at: str


class RepeatedBatch(TypedDict):
    id: str
    status: Literal["queued", "completed", "cancelled"]
    total: int
    accepted: int
    failed: int
    rate_per_sec: int
    client_ref: str | None
    waiting_for: Literal["number_not_connected", "number_released", "tenant_suspended", "scheduled"] | None
    send_at: str | None
    customer_hours: StoredCustomerHours | None
    skip_opted_out: bool
    created_at: str
    started_at: str | None
    completed_at: str | None
    same_messages: bool


class Scheduled(TypedDict):
    """
    A message that is or was scheduled for a time, with its outcome.
    """

    id: str
    status: Literal["scheduled", "sending", "accepted", "failed", "cancelled"]
    send_at: str
    customer_hours: StoredCustomerHours | None
    phone_number_id: str
    http_status: int | None
    wamid: str | None
    response: dict[str, Any] | None
    event_id: str | None
    sent_at: str | None
    created_at: str


ScheduledContactsMessage = TypedDict(
    "ScheduledContactsMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["contacts"],
        "contacts": ContactCards,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


class ScheduledList(TypedDict):
    data: list[Scheduled]
    next_cursor: str | None


ScheduledStickerMessage = TypedDict(
    "ScheduledStickerMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["sticker"],
        "sticker": StickerContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


ScheduledTextMessage = TypedDict(
    "ScheduledTextMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["text"],
        "text": TextContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


ScheduledVideoMessage = TypedDict(
    "ScheduledVideoMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["video"],
        "video": VideoContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


class TemplateParameter(TypedDict):
    type: str
    text: NotRequired[str]
    parameter_name: NotRequired[str]
    payload: NotRequired[str]
    coupon_code: NotRequired[str]
    image: NotRequired[ImageContent]
    video: NotRequired[VideoContent]
    document: NotRequired[DocumentContent]
    location: NotRequired[LocationContent]
    currency: NotRequired[dict[str, Any]]
    date_time: NotRequired[dict[str, Any]]
    action: NotRequired[dict[str, Any]]


class AdminBilling(TypedDict):
    billing_enabled: bool
    tenants: list[BilledTenant]


BatchContactsMessage = TypedDict(
    "BatchContactsMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["contacts"],
        "contacts": ContactCards,
        "message_ref": NotRequired[str],
    },
)


class Billing(TypedDict):
    billing_status: Literal["trialing", "active", "past_due", "exempt"] | None
    trial_ends_at: str | None
    past_due_since: str | None
    restricted: bool
    plan: Plan
    active_numbers: int
    numbers: list[BilledNumber]
    next_charge: NextCharge | None
    mandate: Mandate | None
    amount_due_paise: int
    open_invoices: int
    billing_profile: Profile


class EventList(TypedDict):
    data: list[EventSummary]
    next_cursor: str | None


InboundMessage: TypeAlias = (
    InboundTextMessage
    | InboundImageMessage
    | InboundVideoMessage
    | InboundAudioMessage
    | InboundDocumentMessage
    | InboundStickerMessage
    | InboundLocationMessage
    | InboundContactsMessage
    | InboundInteractiveMessage
    | InboundButtonMessage
    | InboundOrderMessage
    | InboundReactionMessage
    | InboundSystemMessage
    | OtherInboundMessage
)


class InboundMessageData(TypedDict):
    messaging_product: NotRequired[str]
    metadata: NotRequired[EventMetadata]
    contacts: NotRequired[list[EventContact]]
    message: InboundMessage


class InteractiveContent(TypedDict):
    """
    An interactive message: buttons, a list, a link button, a Flow, products or a request. `type` names the kind.
    """

    type: str
    header: NotRequired[InteractiveHeader]
    body: NotRequired[InteractiveText]
    footer: NotRequired[InteractiveText]
    action: InteractiveAction


InteractiveMessage = TypedDict(
    "InteractiveMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["interactive"],
        "interactive": InteractiveContent,
    },
)


class MessageInboundEvent(TypedDict):
    """
    The event `message.inbound`.
    """

    id: str
    type: Literal["message.inbound"]
    api_version: str
    created_at: str
    tenant_id: str
    waba_id: str | None
    phone_number_id: str
    display_phone_number: str | None
    wamid: str
    wa_id: str | None
    user_id: str | None
    dedupe_key: str
    data: InboundMessageData
    raw: Any
    raw_path: str | None


ScheduledInteractiveMessage = TypedDict(
    "ScheduledInteractiveMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["interactive"],
        "interactive": InteractiveContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


class TemplateComponentValues(TypedDict):
    """
    The values for the variables of one component of the template.
    """

    type: str
    sub_type: NotRequired[str]
    index: NotRequired[str | int]
    parameters: NotRequired[list[TemplateParameter]]
    cards: NotRequired[list[dict[str, Any]]]


class TemplateContent(TypedDict):
    name: str
    language: Language
    components: NotRequired[list[TemplateComponentValues]]


TemplateMessage = TypedDict(
    "TemplateMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["template"],
        "template": TemplateContent,
    },
)


BatchInteractiveMessage = TypedDict(
    "BatchInteractiveMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["interactive"],
        "interactive": InteractiveContent,
        "message_ref": NotRequired[str],
    },
)


BatchTemplateMessage = TypedDict(
    "BatchTemplateMessage",
    {
        "from": NotRequired[str],
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["template"],
        "template": TemplateContent,
        "message_ref": NotRequired[str],
    },
)


Event: TypeAlias = (
    MessageInboundEvent
    | MessageStatusEvent
    | MessageErrorEvent
    | MessageEchoEvent
    | MessageOutboundEvent
    | MessageHistoryEvent
    | UserPreferencesEvent
    | CustomerOptOutEvent
    | BatchCompletedEvent
    | TemplateStatusEvent
    | TemplateQualityEvent
    | TemplateCategoryEvent
    | NumberQualityEvent
    | NumberNameEvent
    | NumberConnectionEvent
    | AccountUpdateEvent
    | AccountAlertsEvent
    | AccountCapabilityEvent
    | AccountSecurityEvent
    | TokenExpiringEvent
    | TokenInvalidEvent
    | WebhookFailingEvent
    | WebhookDisabledEvent
    | WebhookRecoveredEvent
    | WebhookDeliveryExhaustedEvent
    | MetaOtherEvent
)


class EventWithDeliveries(TypedDict):
    """
    An event with its deliveries. `event` is null if the body is past retention.
    """

    event: Event | None
    payload_available: bool
    deliveries: list[Delivery1]


OutgoingMessage: TypeAlias = (
    TextMessage
    | ImageMessage
    | VideoMessage
    | AudioMessage
    | DocumentMessage
    | StickerMessage
    | LocationMessage
    | ContactsMessage
    | ReactionMessage
    | InteractiveMessage
    | TemplateMessage
)


ScheduledTemplateMessage = TypedDict(
    "ScheduledTemplateMessage",
    {
        "from": str,
        "to": NotRequired[str],
        "recipient": NotRequired[str],
        "messaging_product": NotRequired[Literal["whatsapp"]],
        "recipient_type": NotRequired[str],
        "context": NotRequired[QuotedMessage],
        "biz_opaque_callback_data": NotRequired[str],
        "recipient_identity_key_hash": NotRequired[str],
        "type": Literal["template"],
        "template": TemplateContent,
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
    },
)


BatchMessage: TypeAlias = (
    BatchTextMessage
    | BatchImageMessage
    | BatchVideoMessage
    | BatchAudioMessage
    | BatchDocumentMessage
    | BatchStickerMessage
    | BatchLocationMessage
    | BatchContactsMessage
    | BatchReactionMessage
    | BatchInteractiveMessage
    | BatchTemplateMessage
)


LaterMessage: TypeAlias = (
    ScheduledTextMessage
    | ScheduledImageMessage
    | ScheduledVideoMessage
    | ScheduledAudioMessage
    | ScheduledDocumentMessage
    | ScheduledStickerMessage
    | ScheduledLocationMessage
    | ScheduledContactsMessage
    | ScheduledReactionMessage
    | ScheduledInteractiveMessage
    | ScheduledTemplateMessage
)


MessageBatch = TypedDict(
    "MessageBatch",
    {
        "from": str,
        "client_ref": NotRequired[str],
        "send_at": NotRequired[str],
        "customer_hours": NotRequired[CustomerHours],
        "skip_opted_out": NotRequired[bool],
        "messages": list[BatchMessage],
    },
    closed=True,
)
