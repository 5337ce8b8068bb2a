"""JSON bodies of endpoints and deliveries: `…In` serializers check requests, and `…Out` serializers write answers."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from gateway import ids
from gateway.api.validation import MomentField
from gateway.outbound.client import InvalidUrlError, validate_url
from webhooks import replay
from webhooks.delivery import retries_and_attempt_log
from webhooks.delivery.caps import MOST_BATCH_EVENTS
from webhooks.destinations.kinds import KINDS
from webhooks.endpoints import health
from webhooks.endpoints.lifecycle import (
    HIGHEST_RATE,
    HIGHEST_THRESHOLD,
    LONGEST_METADATA_NAME,
    LONGEST_METADATA_TEXT,
    LONGEST_QUIET_SECONDS,
    LONGEST_RETRY_SCHEDULE,
    LONGEST_RETRY_STEP,
    LONGEST_TIMEOUT_SECONDS,
    LONGEST_WAIT_MILLISECONDS,
    MOST_IDS,
    MOST_METADATA,
    MOST_RETRY_STEPS,
    members_problem,
)
from webhooks.events import filters
from webhooks.events.envelope import ALL, EVENT_TYPES, STATUSES
from webhooks.models import MAX_URL_LENGTH, Delivery, Endpoint, steps_of
from webhooks.requests import credentials, signed_request, verify_ping
from webhooks.requests.signed_request import is_secret


class EachOnceField(serializers.ListField):
    """A list without repeated items, in the caller's order."""

    def to_internal_value(self, data: Any) -> list[str]:
        return list(dict.fromkeys(super().to_internal_value(data)))


class EventTypesField(EachOnceField):
    """Event types, or `*` for all types."""

    child = serializers.ChoiceField(choices=[ALL, *EVENT_TYPES])

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_empty=False, max_length=len(EVENT_TYPES) + 1, **kwargs)


@extend_schema_field({"type": "string", "maxLength": MAX_URL_LENGTH})
class UrlField(serializers.CharField):
    """A URL that the service may POST to (decision "Webhooks to customers")."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        url = super().to_internal_value(data)
        try:
            return validate_url(url, allow_http=settings.WEBHOOK_ALLOW_HTTP, max_length=MAX_URL_LENGTH)
        except InvalidUrlError as error:
            raise serializers.ValidationError(str(error)) from None


@extend_schema_field({"type": "string", "pattern": "^whsec_", "maxLength": 94})
class SecretField(serializers.CharField):
    """A signing secret from the caller: `whsec_` and the base64 of 24 to 64 bytes, as in Standard Webhooks."""

    def to_internal_value(self, data: Any) -> str:
        secret = super().to_internal_value(data)
        if not is_secret(secret):
            raise serializers.ValidationError(
                "Must be `whsec_` and the base64 of 24 to 64 bytes. Leave it out to get a random one."
            )
        return secret


class IdsField(EachOnceField):
    """Ids of accounts or numbers. Null for all."""

    child = serializers.RegexField(r"\A[0-9]{1,64}\Z")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, allow_null=True, allow_empty=False, max_length=MOST_IDS, **kwargs)


_METADATA = "Your own notes, texts by name. They are shown with the endpoint and never sent."


class MetadataField(serializers.DictField):
    """The caller's notes: at most 50 texts by name, with names of up to 40 and texts of up to 500 characters."""

    child = serializers.CharField(allow_blank=True, max_length=LONGEST_METADATA_TEXT)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        metadata: dict[str, str] = super().to_internal_value(data)
        if len(metadata) > MOST_METADATA:
            raise serializers.ValidationError(f"Must have at most {MOST_METADATA} members.")
        if any(not 1 <= len(name) <= LONGEST_METADATA_NAME or "\0" in name for name in metadata):
            raise serializers.ValidationError(f"Names must have 1 to {LONGEST_METADATA_NAME} characters.")
        return metadata


@extend_schema_field({"type": ["object", "null"], "additionalProperties": True})
class FilterField(serializers.JSONField):
    """A filter by content (`events/filters.py`)."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            filters.compiled(data)
        except filters.InvalidFilterError as error:
            raise serializers.ValidationError(str(error)) from None
        return data


class PemField(serializers.CharField):
    """Certificates or a key as PEM."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, allow_null=True, max_length=credentials.LONGEST_PEM, **kwargs)


class TlsSettings(serializers.Serializer[dict[str, Any]]):
    """The client certificate and the CA for connections to the endpoint."""

    client_certificate = PemField()
    client_key = PemField()
    ca = PemField()


class OAuth2Settings(serializers.Serializer[dict[str, Any]]):
    """Client credentials: requests carry a token that your authorisation server issues."""

    token_url = UrlField()
    client_id = serializers.CharField(max_length=255)
    client_secret = serializers.CharField(max_length=1024)
    scope = serializers.CharField(required=False, allow_null=True, max_length=1024)


class BatchSettings(serializers.Serializer[dict[str, Any]]):
    """How many events one request may contain, and how long the first event waits."""

    events = serializers.IntegerField(min_value=2, max_value=MOST_BATCH_EVENTS)
    milliseconds = serializers.IntegerField(
        required=False,
        default=200,
        min_value=1,
        max_value=LONGEST_WAIT_MILLISECONDS,
    )


class DestinationSettings(serializers.Serializer[dict[str, Any]]):
    """Where an endpoint sends events if it is not a webhook. Each kind has its own members (docs/destinations.md)."""

    def get_fields(self) -> dict[str, Any]:
        # Each kind checks its own settings (`webhooks/destinations/`).
        return {
            name: serializers.CharField(required=False, allow_null=True, max_length=2048)
            for kind in KINDS.values()
            for name in kind.SETTINGS._fields
        }


class RetryScheduleField(serializers.ListField):
    """Seconds from each failed attempt to the next."""

    child = serializers.IntegerField(min_value=1, max_value=LONGEST_RETRY_STEP)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_null=True, allow_empty=False, max_length=MOST_RETRY_STEPS, **kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        steps: list[Any] = super().to_internal_value(data)
        if sum(steps) > LONGEST_RETRY_SCHEDULE:
            raise serializers.ValidationError(
                f"Must be at most {LONGEST_RETRY_SCHEDULE:,} seconds in all: 7 days."
            )
        return steps


class EndpointSettings(serializers.Serializer[dict[str, Any]]):
    """The members that both the creation and the change of an endpoint accept."""

    waba_ids = IdsField()
    phone_number_ids = IdsField()
    statuses = EachOnceField(
        child=serializers.ChoiceField(choices=STATUSES),
        required=False,
        allow_null=True,
        allow_empty=False,
        max_length=len(STATUSES),
    )
    filter = FilterField(required=False, allow_null=True)
    headers = serializers.DictField(
        child=serializers.CharField(max_length=signed_request.MOST_HEADER_BYTES),
        required=False,
        allow_null=True,
    )
    timeout_seconds = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=LONGEST_TIMEOUT_SECONDS
    )
    rate_per_second = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=HIGHEST_RATE
    )
    ordered = serializers.BooleanField(required=False)
    keep_answers = serializers.BooleanField(required=False)
    exhausted_mail_threshold = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=HIGHEST_THRESHOLD
    )
    retry_schedule = RetryScheduleField(required=False)
    tls = TlsSettings(required=False, allow_null=True)
    oauth2 = OAuth2Settings(required=False, allow_null=True)
    asymmetric_signature = serializers.BooleanField(required=False)
    batch = BatchSettings(required=False, allow_null=True)
    quiet_seconds = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=LONGEST_QUIET_SECONDS
    )
    destination = DestinationSettings(required=False)
    uid = serializers.CharField(required=False, allow_null=True, max_length=255)
    metadata = MetadataField(required=False, help_text=_METADATA)
    format = serializers.ChoiceField(required=False, choices=Endpoint.Format.choices)
    verify_token = serializers.CharField(required=False, max_length=255)


class EndpointIn(EndpointSettings):
    kind = serializers.ChoiceField(
        required=False,
        choices=Endpoint.Kind.choices,
        help_text="What receives the events: `webhook` is your server, and `inbox` is the console's conversations. The "
        "other kinds are a queue, topic, exchange or bucket, which `destination` describes.",
    )
    url = UrlField(required=False, help_text="The address of your server. Required if the kind is `webhook`.")
    description = serializers.CharField(required=False, default="", allow_blank=True, max_length=500)
    event_types = EventTypesField(required=False, default=lambda: [ALL])

    secret = SecretField(required=False)
    status = serializers.ChoiceField(required=False, choices=[Endpoint.Status.PENDING])

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        kind = attrs.get("kind", Endpoint.Kind.WEBHOOK)
        needed = {Endpoint.Kind.WEBHOOK: "url", Endpoint.Kind.INBOX: "kind"}.get(kind, "destination")
        problems = members_problem(kind, set(self.initial_data))
        if needed not in attrs:
            problems[needed] = "This field is required."
        if problems:
            raise serializers.ValidationError(problems)
        return attrs


class EndpointChangeIn(EndpointSettings):
    url = UrlField(required=False)
    description = serializers.CharField(required=False, allow_blank=True, max_length=500)
    event_types = EventTypesField(required=False)
    status = serializers.ChoiceField(required=False, choices=[Endpoint.Status.ACTIVE, Endpoint.Status.PAUSED])


@extend_schema_field({"type": "object", "additionalProperties": True})
class PreviewedFilterField(FilterField):
    """A filter that must be given."""


class FilterPreviewIn(serializers.Serializer[dict[str, Any]]):
    filter = PreviewedFilterField()


class PreviewedEventOut(serializers.Serializer[filters.PreviewedEvent]):
    id = serializers.CharField(source="public_id")
    type = serializers.ChoiceField(choices=EVENT_TYPES)
    created_at = serializers.DateTimeField()
    passes = serializers.BooleanField()


class FilterPreviewOut(serializers.Serializer[filters.Preview]):
    """The result of a filter for the endpoint's recent events."""

    checked = serializers.IntegerField()
    passed = serializers.IntegerField()
    hints = serializers.ListField(child=serializers.CharField())
    events = PreviewedEventOut(many=True)


class ExampleIn(serializers.Serializer[dict[str, Any]]):
    event_type = serializers.ChoiceField(choices=EVENT_TYPES)


class ExampleOut(serializers.Serializer[verify_ping.SentExample]):
    """The example in the form that was sent, with `"test": true`, and the endpoint's answer."""

    event = serializers.DictField()
    delivered = serializers.BooleanField()
    http_status = serializers.IntegerField(allow_null=True)
    response_ms = serializers.IntegerField()
    error = serializers.CharField(allow_null=True)
    body_excerpt = serializers.CharField(allow_blank=True)


class RotateSecretIn(serializers.Serializer[dict[str, Any]]):
    overlap_hours = serializers.IntegerField(required=False, default=24, min_value=0, max_value=168)
    secret = SecretField(required=False, help_text="The new secret. The default is a random secret.")


class ReplayIn(serializers.Serializer[dict[str, Any]]):
    """The body of an endpoint replay."""

    begin = MomentField()
    end = MomentField()
    status = serializers.ListField(
        child=serializers.ChoiceField(choices=replay.STATUSES),
        required=False,
        allow_empty=False,
        default=list(replay.DEFAULT_STATUSES),
    )
    event_types = EventTypesField(required=False, allow_null=True, default=None)
    preview = serializers.BooleanField(required=False, default=False)

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        renamed = {"begin": "from", "end": "to"}  # `from` is a keyword of Python
        return {renamed.get(name, name): field for name, field in fields.items()}


class ReplayPreviewOut(serializers.Serializer[replay.Queued]):
    """Preview of a replay: the number of deliveries, the time of the oldest, and the minimum duration of
    the release in seconds.
    """

    count = serializers.IntegerField()
    oldest = serializers.DateTimeField(allow_null=True)
    expected_seconds = serializers.IntegerField()


class QueuedOut(serializers.Serializer[dict[str, Any]]):
    queued = serializers.IntegerField()


class EndpointOut(serializers.ModelSerializer[Endpoint]):
    filter = FilterField(allow_null=True)
    metadata = serializers.DictField(child=serializers.CharField(), help_text=_METADATA)
    headers = serializers.SerializerMethodField()
    retry_schedule = serializers.SerializerMethodField()
    tls = serializers.SerializerMethodField()
    oauth2 = serializers.SerializerMethodField()
    asymmetric_signature = serializers.SerializerMethodField()
    destination = serializers.SerializerMethodField()
    public_key = serializers.SerializerMethodField()
    batch = serializers.SerializerMethodField()

    class Meta:
        model = Endpoint
        fields = [
            "id",
            "environment",
            "kind",
            "url",
            "format",
            "description",
            "event_types",
            "waba_ids",
            "phone_number_ids",
            "statuses",
            "filter",
            "uid",
            "metadata",
            "headers",
            "timeout_seconds",
            "rate_per_second",
            "ordered",
            "keep_answers",
            "exhausted_mail_threshold",
            "retry_schedule",
            "tls",
            "oauth2",
            "asymmetric_signature",
            "destination",
            "public_key",
            "batch",
            "quiet_seconds",
            "status",
            "verified_at",
            "secret_prefix",
            "previous_secret_expires_at",
            "last_success_at",
            "consecutive_failures",
        ]

    def get_headers(self, endpoint: Endpoint) -> dict[str, str]:
        """The names, each with a mask for its value. Empty if no key decrypts the headers."""
        return dict.fromkeys(signed_request.header_names(endpoint), credentials.MASK)

    @extend_schema_field(RetryScheduleField())
    def get_retry_schedule(self, endpoint: Endpoint) -> list[int] | None:
        return steps_of(endpoint.retry_schedule) if endpoint.retry_schedule else None

    @extend_schema_field(BatchSettings(allow_null=True))
    def get_batch(self, endpoint: Endpoint) -> dict[str, int | None] | None:
        if endpoint.batch_events is None:
            return None
        return {"events": endpoint.batch_events, "milliseconds": endpoint.batch_milliseconds}

    @extend_schema_field(TlsSettings(allow_null=True))
    def get_tls(self, endpoint: Endpoint) -> dict[str, str | None] | None:
        return credentials.shown(credentials.readable(endpoint).tls)

    @extend_schema_field(OAuth2Settings(allow_null=True))
    def get_oauth2(self, endpoint: Endpoint) -> dict[str, str | None] | None:
        return credentials.shown(credentials.readable(endpoint).oauth2)

    @extend_schema_field(DestinationSettings(allow_null=True))
    def get_destination(self, endpoint: Endpoint) -> dict[str, str | None] | None:
        return credentials.shown(credentials.readable(endpoint).destination)

    def get_asymmetric_signature(self, endpoint: Endpoint) -> bool:
        return credentials.readable(endpoint).seed is not None

    def get_public_key(self, endpoint: Endpoint) -> str | None:
        return credentials.readable(endpoint).public_key


class EndpointReasonOut(serializers.Serializer[health.Reason]):
    error = serializers.CharField(allow_null=True)
    http_status = serializers.IntegerField(allow_null=True)


class EndpointWaitingOut(serializers.Serializer[health.Waiting]):
    count = serializers.IntegerField()
    oldest = serializers.DateTimeField(allow_null=True)


class EndpointLastHourOut(serializers.Serializer[health.LastHour]):
    attempted = serializers.IntegerField()
    success_share = serializers.FloatField(allow_null=True)
    p50_ms = serializers.IntegerField(allow_null=True)
    p95_ms = serializers.IntegerField(allow_null=True)


class EndpointHealthOut(serializers.Serializer[health.Health]):
    """Why an endpoint's deliveries wait, until when, and how it answered in the last hour."""

    state = serializers.ChoiceField(choices=["healthy", "failing", "circuit_open"])
    since = serializers.DateTimeField(allow_null=True)
    reason = EndpointReasonOut(allow_null=True)
    retry_at = serializers.DateTimeField(allow_null=True)
    waiting = EndpointWaitingOut()
    last_hour = EndpointLastHourOut()


class EndpointWithHealthOut(EndpointOut):
    """An endpoint with its health, for the answer about a single endpoint."""

    health = serializers.SerializerMethodField()

    class Meta(EndpointOut.Meta):
        fields = [*EndpointOut.Meta.fields, "health"]

    @extend_schema_field(EndpointHealthOut)
    def get_health(self, endpoint: Endpoint) -> dict[str, Any]:
        shown: dict[str, Any] = EndpointHealthOut(health.health_of(endpoint)).data
        return shown


class NewEndpointOut(EndpointOut):
    """An endpoint with its secret. Only the answer to the creation of the endpoint contains the secret."""

    class Meta(EndpointOut.Meta):
        fields = [
            name
            for shown in EndpointOut.Meta.fields
            for name in (("secret", shown) if shown == "secret_prefix" else (shown,))
        ]


class RotatedSecretOut(serializers.ModelSerializer[Endpoint]):
    class Meta:
        model = Endpoint
        fields = ["id", "secret", "secret_prefix", "previous_secret_expires_at"]


class VerifiedOut(serializers.Serializer[dict[str, Any]]):
    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=Endpoint.Status.choices)
    verified_at = serializers.DateTimeField()
    response_ms = serializers.IntegerField()


class DeletedOut(serializers.Serializer[dict[str, Any]]):
    id = serializers.UUIDField()
    deleted = serializers.BooleanField()


class DeliveryOut(serializers.ModelSerializer[Delivery]):
    """A delivery. While it is held back, `last_error` names the reason and `next_attempt_at` the earliest attempt."""

    id = serializers.CharField(source="public_id")
    event_id = serializers.SerializerMethodField()
    replay_of = serializers.SerializerMethodField()

    class Meta:
        model = Delivery
        fields = [
            "id",
            "event_id",
            "event_type",
            "endpoint_id",
            "status",
            "attempts",
            "last_http_status",
            "last_error",
            "last_response_ms",
            "next_attempt_at",
            "is_replay",
            "replay_of",
        ]

    def get_event_id(self, delivery: Delivery) -> str:
        return ids.encode(ids.EVENT, delivery.event_id)

    def get_replay_of(self, delivery: Delivery) -> str | None:
        return ids.encode(ids.DELIVERY, delivery.replay_of) if delivery.replay_of else None


class ReplayedOut(DeliveryOut):
    class Meta(DeliveryOut.Meta):
        fields = [
            "id",
            "status",
            "attempts",
            "last_http_status",
            "last_response_ms",
            "is_replay",
            "replay_of",
        ]


class DeliveryAttemptOut(serializers.Serializer[dict[str, Any]]):
    """An attempt. The receiver's answers to the newest failed attempts are stored as long as the event's body."""

    at = serializers.DateTimeField()
    http_status = serializers.IntegerField(allow_null=True)
    ms = serializers.IntegerField()
    error = serializers.CharField(allow_null=True)
    response_excerpt = serializers.CharField(allow_blank=True)
    response_headers = serializers.DictField(child=serializers.CharField(), allow_null=True)
    response_body = serializers.CharField(allow_null=True)


class DeliveryWithLogOut(DeliveryOut):
    attempt_log = serializers.SerializerMethodField()

    class Meta(DeliveryOut.Meta):
        fields = [*DeliveryOut.Meta.fields[:10], "attempt_log", *DeliveryOut.Meta.fields[10:]]

    @extend_schema_field(DeliveryAttemptOut(many=True))
    def get_attempt_log(self, delivery: Delivery) -> list[dict[str, Any]]:
        return retries_and_attempt_log.shown_attempts(delivery)
