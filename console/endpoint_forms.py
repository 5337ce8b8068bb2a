"""Forms of webhook endpoints: settings, rotation of the secret, example events, recovery of a period."""

from collections.abc import Mapping
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from console.change_forms import ChangeForm
from console.lists import IdsField
from gateway.clock import now
from webhooks.endpoints import lifecycle
from webhooks.events.envelope import ALL, EVENT_TYPES, STATUSES
from webhooks.models import MAX_URL_LENGTH, Endpoint
from webhooks.recover_form import RecoverForm
from webhooks.requests import credentials, signed_request
from webhooks.requests.credentials import MASK
from webhooks.serializers import BatchSettings, EndpointOut, EndpointSettings

_MOMENT = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
RECOMMENDED = ("message.inbound", "message.status")
"""The event types that a conversation needs. With `*`, the endpoint would also get an event for every message that the
business itself sends.
"""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _pair(line: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not colon or not name.strip():
        raise ValidationError(f"Write “name: value” in each line, not “{line[:40]}”.")
    return name.strip(), text.strip()


class LinesField(forms.CharField):
    """Names with values, one `name: value` on each line.

    The API also stores names with a colon, and values with line breaks. The lines of a stored pair (`initial`) are read
    as that pair.
    """

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        lines, place = _lines(super().to_python(value) or ""), 0
        pairs: dict[str, str] = {}
        stored = [(pair, _lines(self.prepare_value(dict([pair])))) for pair in (self.initial or {}).items()]
        while place < len(lines):
            same = (each for each in stored if each[1] == lines[place : place + len(each[1])])
            (name, text), taken = next(same, None) or (_pair(lines[place]), lines[place : place + 1])
            place += len(taken)
            if name in pairs:
                raise ValidationError(f"“{name[:40]}” appears twice.")
            pairs[name] = text
        return pairs

    def prepare_value(self, value: Any) -> Any:
        return (
            "\n".join(f"{name}: {text}" for name, text in value.items()) if isinstance(value, dict) else value
        )


class StepsField(IdsField):
    """Seconds separated by spaces, commas or line ends."""

    PROBLEM = "Give whole seconds, such as 5, 30, 120."

    def to_python(self, value: Any) -> Any:
        try:
            return [int(each) for each in super().to_python(value)]
        except ValueError:
            # Python refuses to convert thousands of digits.
            raise ValidationError(self.PROBLEM) from None

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class FilterField(forms.JSONField):
    """A filter by content."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "code"})

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


def _text(label: str, help_text: str = "", *, rows: int = 0) -> forms.CharField:
    attrs: dict[str, Any] = {"autocomplete": "off", "spellcheck": "false"}
    widget = (
        forms.Textarea(attrs={**attrs, "rows": rows, "class": "code"}) if rows else forms.TextInput(attrs)
    )
    return forms.CharField(label=label, help_text=help_text, required=False, widget=widget)


_MEMBERS, _OF_BATCHES = EndpointSettings().fields, BatchSettings().fields


def _number(member: Any, label: str, help_text: str, initial: int | None = None) -> forms.IntegerField:
    """The form field of a number, with the limits of the API's field (`member`)."""
    return forms.IntegerField(
        label=label,
        help_text=help_text,
        required=False,
        initial=initial,
        min_value=member.min_value,
        max_value=member.max_value,
    )


class EndpointForm(forms.Form):
    """The settings of an endpoint. Those below `event_types` are optional."""

    url = forms.CharField(
        label="URL",
        max_length=MAX_URL_LENGTH,
        help_text="We ping it at once with a challenge, which it must return.",
        widget=forms.URLInput(attrs={"autocomplete": "off", "placeholder": "https://example.com/webhooks"}),
    )
    description = forms.CharField(label="Description", max_length=500, required=False)
    event_types = forms.MultipleChoiceField(
        label="Events",
        choices=[(ALL, "Every event"), *((name, name) for name in EVENT_TYPES)],
        initial=list(RECOMMENDED),
        widget=forms.CheckboxSelectMultiple,
    )
    phone_number_ids = IdsField(
        label="Only for these numbers", required=False, help_text="Each phone_number_id; empty for all."
    )
    waba_ids = IdsField(
        label="Only for these accounts", required=False, help_text="Each WABA id; empty for all."
    )
    statuses = forms.MultipleChoiceField(
        label="Only these statuses of your messages",
        choices=[(status, status.capitalize()) for status in STATUSES],
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    filter = FilterField(
        label="Only events whose content passes",
        required=False,
        help_text="A filter as JSON, such as "
        "<code>{&quot;data.message.type&quot;: &quot;button&quot;}</code>; empty for all.",
    )
    headers = LinesField(
        label="Headers",
        required=False,
        help_text=f"“Name: value” in each line, sent with every request. Values are stored encrypted and shown as "
        f"{MASK}. Leave {MASK} to keep them.",
    )
    timeout_seconds = _number(_MEMBERS["timeout_seconds"], "Seconds to answer", "Empty: 15.")
    rate_per_second = _number(_MEMBERS["rate_per_second"], "Requests a second, at most", "Empty: no limit.")
    ordered = forms.BooleanField(label="The events of one customer one after another", required=False)
    keep_answers = forms.BooleanField(
        label="Keep the start of each answer to a successful attempt", required=False
    )
    exhausted_mail_threshold = _number(
        _MEMBERS["exhausted_mail_threshold"],
        "Send mail when this many deliveries are given up in a day",
        "Empty: no mail.",
        initial=1,
    )
    retry_schedule = StepsField(
        label="Seconds between attempts",
        required=False,
        help_text="From each failed attempt to the next, such as 5, 30, 120. Empty: 12 attempts in about 76 hours.",
    )
    batch_events = _number(
        _OF_BATCHES["events"],
        "Events in one request, at most",
        "Empty: each event is sent in a separate request.",
    )
    batch_milliseconds = _number(
        _OF_BATCHES["milliseconds"], "Milliseconds to wait for more events", "Empty: 200."
    )
    quiet_seconds = _number(
        _MEMBERS["quiet_seconds"],
        "Seconds to collect a customer's messages",
        "The messages then arrive in one request, in order. Empty: each message is sent at once.",
    )
    tls_client_certificate = _text(
        "Client certificate", "PEM, with its chain, for servers that require a client certificate.", rows=3
    )
    tls_client_key = _text(
        "Its private key", f"Stored encrypted and shown as {MASK}. Leave {MASK} to keep it.", rows=3
    )
    tls_ca = _text(
        "Your own CA",
        "PEM of the authority that signs your server's certificate. Empty: the public ones.",
        rows=3,
    )
    oauth2_token_url = _text("OAuth2 token URL", "Every request then carries a token of this server.")
    oauth2_client_id = _text("OAuth2 client id")
    oauth2_client_secret = _text("OAuth2 client secret", f"Stored encrypted and shown as {MASK}.")
    oauth2_scope = _text("OAuth2 scope", "Empty: none.")
    asymmetric_signature = forms.BooleanField(
        label="Also sign with a key pair: the public key can verify deliveries, but not forge them",
        required=False,
    )
    destination = LinesField(
        label="Settings of the queue or archive",
        required=False,
        help_text="“name: value” in each line, as <a href='/docs/destinations/'>the guide</a> lists them. Secrets are "
        f"stored encrypted and shown as {MASK}. Leave {MASK} to keep them.",
        widget=forms.Textarea(
            attrs={
                "rows": 6,
                "spellcheck": "false",
                "autocomplete": "off",
                "placeholder": "queue_url: https://sqs.ap-south-1.amazonaws.com/…\nregion: ap-south-1",
            }
        ),
    )
    uid = forms.CharField(
        label="Your own id", required=False, max_length=255, help_text="Each endpoint needs a different id."
    )
    metadata = LinesField(
        label="Your own notes", required=False, help_text="“Name: value” in each line; never sent."
    )
    verify_token = forms.CharField(
        label="Verify token",
        required=False,
        max_length=255,
        help_text="Only for Meta's own format: its handshake sends this token to your server.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    ADVANCED: tuple[str, ...] = (
        "phone_number_ids",
        "waba_ids",
        "headers",
        "timeout_seconds",
        "rate_per_second",
        "batch_events",
        "batch_milliseconds",
        "quiet_seconds",
        "retry_schedule",
        "exhausted_mail_threshold",
        "uid",
        "metadata",
        "verify_token",
    )
    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tls": credentials.Tls._fields,
        "oauth2": credentials.OAuth2._fields,
        "batch": ("events", "milliseconds"),
    }
    """Members of the API's body that have several fields in the form."""

    endpoint_kind = Endpoint.Kind.WEBHOOK
    """The kind of the endpoint to change."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            # `LinesField` reads it.
            field.initial = self.get_initial_for_field(field, name)

    def advanced(self) -> list[forms.BoundField]:
        """The fields of the optional settings that this kind of endpoint has."""
        foreign = lifecycle.members_problem(
            self.endpoint_kind, {self._member(name) for name in self.ADVANCED}
        )
        return [self[name] for name in self.ADVANCED if self._member(name) not in foreign]

    def authentication(self) -> list[forms.BoundField]:
        """The fields for the credentials that the service calls the endpoint with (`tls` and `oauth2`)."""
        return [self[f"{group}_{name}"] for group in ("tls", "oauth2") for name in self.GROUPS[group]]

    def _member(self, field: str) -> str:
        """The member of the API's body that a form field is part of."""
        return next((group for group in self.GROUPS if field.startswith(f"{group}_")), field)

    def body(self) -> dict[str, Any]:
        """The body of the API's call. Empty fields become null. An empty verify token or destination is left out, so
        the stored value is kept.
        """
        body = {**self.cleaned_data}
        for name in (
            "phone_number_ids",
            "waba_ids",
            "statuses",
            "filter",
            "headers",
            "retry_schedule",
            "uid",
        ):
            body[name] = body[name] or None
        for group, names in self.GROUPS.items():
            values = {name: body.pop(f"{group}_{name}") for name in names}
            body[group] = {name: value for name, value in values.items() if value} or None
        for name in ("verify_token", "destination"):
            if not body[name]:
                del body[name]
        return body


class EndpointChangeForm(ChangeForm, EndpointForm):
    """Changes an endpoint."""

    def changes(self) -> dict[str, Any]:
        """The members of the API's body with a changed form field."""
        changed = {self._member(field) for field in self.changed_data}
        return {name: value for name, value in self.body().items() if name in changed}


class NewEndpointForm(EndpointForm):
    """Creates an endpoint. Its kind and its format cannot change later."""

    kind = forms.ChoiceField(
        label="Where events go",
        choices=[
            (Endpoint.Kind.WEBHOOK, "To a URL of yours"),
            (Endpoint.Kind.SQS, "To an SQS queue"),
            (Endpoint.Kind.S3, "To an S3 bucket, as an archive"),
            (Endpoint.Kind.KAFKA, "To a Kafka topic"),
            (Endpoint.Kind.RABBITMQ, "To a RabbitMQ exchange"),
        ],
        initial=Endpoint.Kind.WEBHOOK,
        required=False,
    )

    format = forms.ChoiceField(
        label="Format",
        choices=[
            (Endpoint.Format.ENVELOPE, "The gateway's events (recommended)"),
            (Endpoint.Format.META, "Meta's own notifications, with a handshake instead of a ping"),
        ],
        initial=Endpoint.Format.ENVELOPE,
        required=False,
    )

    ADVANCED = ("format", *EndpointForm.ADVANCED)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Only webhooks need a URL, so the API checks it.
        self.fields["url"].required = False

    def body(self) -> dict[str, Any]:
        body = super().body()
        body["format"] = body["format"] or Endpoint.Format.ENVELOPE
        body["kind"] = body["kind"] or Endpoint.Kind.WEBHOOK
        if not body["url"]:
            del body["url"]
        if body["kind"] != Endpoint.Kind.WEBHOOK:
            # The form shows fields that this kind of endpoint does not have. They are left out if empty.
            unmeant = [name for name in lifecycle.NOT_OF_ARCHIVES if not body.get(name) or name == "format"]
            body = {name: value for name, value in body.items() if name not in unmeant}
        return body


def initial_of(endpoint: Endpoint) -> dict[str, Any]:
    """The initial values of an endpoint's form, from the API's response for the endpoint. Secrets are masked."""
    shown: dict[str, Any] = {**EndpointOut(endpoint).data}
    for group, names in EndpointForm.GROUPS.items():
        found = shown.pop(group) or {}
        shown |= {f"{group}_{name}": found.get(name) for name in names}
    for name in ("phone_number_ids", "waba_ids", "retry_schedule"):
        shown[name] = shown[name] or []
    shown["destination"] = {name: text for name, text in (shown["destination"] or {}).items() if text}
    return shown


class RotateForm(forms.Form):
    """A new signing secret."""

    overlap_hours = forms.IntegerField(
        label="Hours during which the old secret also signs",
        min_value=0,
        max_value=168,
        initial=24,
        widget=forms.NumberInput(attrs={"type": "range", "step": "1", "data-shows": "#overlap"}),
    )
    secret = forms.CharField(
        label="A secret of your own",
        required=False,
        help_text="<code>whsec_</code> and the base64 of 24 to 64 bytes. Empty: a random one.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def clean_secret(self) -> str | None:
        secret: str = self.cleaned_data["secret"]
        if secret and not signed_request.is_secret(secret):
            raise ValidationError("It must be whsec_ and the base64 of 24 to 64 bytes.")
        return secret or None


class ExampleForm(forms.Form):
    """An example event to send."""

    event_type = forms.ChoiceField(
        label="Event", choices=[(name, name) for name in EVENT_TYPES], initial="message.inbound"
    )


class PeriodForm(RecoverForm):
    """The time range of the deliveries to replay: the last hours, or a period in the member's time zone."""

    since = forms.DateTimeField(label="Or since", required=False, widget=_MOMENT)
    until = forms.DateTimeField(label="Until", required=False, widget=_MOMENT)

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._zone = zone
        self.fields["hours"].required = False
        self.fields[
            "since"
        ].help_text = f"Instead of the last hours. Times in {now().astimezone(zone).tzname()}."
        self.fields["until"].help_text = "Left empty: until now."

    def full_clean(self) -> None:
        with timezone.override(self._zone):
            super().full_clean()

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        since, until = given.get("since"), given.get("until")
        if until and not since:
            self.add_error("since", "Enter a start.")
        elif since and since >= (until or now()):
            self.add_error("since", "The start must be before the end.")
        elif not since and not given.get("hours") and not self.errors:
            self.add_error("hours", "Enter a number of hours, or a start.")
        return given

    def range(self) -> dict[str, Any]:
        since, until = self.cleaned_data["since"], self.cleaned_data["until"]
        if since is None:
            return super().range()
        return {"begin": since, "end": until or now(), "statuses": self.cleaned_data["status"]}
