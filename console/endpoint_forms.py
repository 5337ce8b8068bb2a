"""Forms of webhook endpoints: settings, rotation of the secret, example events, recovery of a period."""

from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from console.lists import IdsField
from gateway.clock import now
from webhooks.events.envelope import ALL, EVENT_TYPES, STATUSES
from webhooks.forms import RecoverForm
from webhooks.models import Endpoint
from webhooks.requests import signed_request
from webhooks.serializers import HIGHEST_RATE, HIGHEST_THRESHOLD, LONGEST_TIMEOUT

_MOMENT = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
RECOMMENDED = ("message.inbound", "message.status")
"""What a conversation needs; `*` also sends the echo of every own message."""


class LinesField(forms.CharField):
    """Names with values, `name: value` in each line."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        pairs: dict[str, str] = {}
        for line in (super().to_python(value) or "").splitlines():
            name, colon, text = line.partition(":")
            if not line.strip():
                continue
            if not colon or not name.strip():
                raise ValidationError(f"Write “name: value” in each line, not “{line[:40]}”.")
            if name.strip() in pairs:
                raise ValidationError(f"“{name.strip()[:40]}” is there twice.")
            pairs[name.strip()] = text.strip()
        return pairs

    def prepare_value(self, value: Any) -> Any:
        return (
            "\n".join(f"{name}: {text}" for name, text in value.items()) if isinstance(value, dict) else value
        )


class EndpointForm(forms.Form):
    """An endpoint to change. The settings below `event_types` are optional."""

    url = forms.CharField(
        label="URL",
        max_length=2048,
        help_text="It is pinged with a challenge at once, and must answer with it.",
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
        label="Only of these numbers", required=False, help_text="Each phone_number_id; empty for all."
    )
    waba_ids = IdsField(
        label="Only of these accounts", required=False, help_text="Each WABA id; empty for all."
    )
    statuses = forms.MultipleChoiceField(
        label="Only these statuses of messages",
        choices=[(status, status.capitalize()) for status in STATUSES],
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    filter = forms.JSONField(
        label="Only events whose content passes",
        required=False,
        help_text="A filter as JSON, such as "
        "<code>{&quot;data.message.type&quot;: &quot;button&quot;}</code>; empty for all.",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "code"}),
    )
    headers = LinesField(
        label="Headers",
        required=False,
        help_text=f"“Name: value” in each line, sent with every request. Values are stored encrypted and shown as "
        f"{signed_request.MASK}, which keeps them.",
    )
    timeout_seconds = forms.IntegerField(
        label="Seconds to answer",
        required=False,
        min_value=1,
        max_value=LONGEST_TIMEOUT,
        help_text="Empty: 15.",
    )
    rate_per_second = forms.IntegerField(
        label="Requests a second at most",
        required=False,
        min_value=1,
        max_value=HIGHEST_RATE,
        help_text="Empty: as many as it takes.",
    )
    ordered = forms.BooleanField(label="The events of one customer one after another", required=False)
    keep_answers = forms.BooleanField(
        label="Keep the beginnings of answers to successful attempts", required=False
    )
    exhausted_mail_threshold = forms.IntegerField(
        label="Mail when so many deliveries were given up in a day",
        required=False,
        min_value=1,
        max_value=HIGHEST_THRESHOLD,
        initial=1,
        help_text="Empty: no mail.",
    )
    uid = forms.CharField(
        label="Your own id", required=False, max_length=255, help_text="No two endpoints have the same."
    )
    metadata = LinesField(
        label="Your own notes", required=False, help_text="“Name: value” in each line; never sent."
    )
    verify_token = forms.CharField(
        label="Verify token",
        required=False,
        max_length=255,
        help_text="Only for Meta's own format. Its handshake shows it to your server.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    ADVANCED: tuple[str, ...] = (
        "phone_number_ids",
        "waba_ids",
        "headers",
        "timeout_seconds",
        "rate_per_second",
        "exhausted_mail_threshold",
        "uid",
        "metadata",
        "verify_token",
    )

    def advanced(self) -> list[forms.BoundField]:
        """The optional settings that are a field in a line each."""
        return [self[name] for name in self.ADVANCED]

    def body(self) -> dict[str, Any]:
        """The body of the API's call: what is empty is null, a verify token that is left empty stays."""
        body = {**self.cleaned_data}
        for name in ("phone_number_ids", "waba_ids", "statuses", "filter", "headers", "uid"):
            body[name] = body[name] or None
        if not body["verify_token"]:
            del body["verify_token"]
        return body


class NewEndpointForm(EndpointForm):
    """An endpoint to create; its format stays for good."""

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

    def body(self) -> dict[str, Any]:
        body = super().body()
        body["format"] = body["format"] or Endpoint.Format.ENVELOPE
        return body


def initial_of(endpoint: Endpoint) -> dict[str, Any]:
    """What the form of an endpoint begins with; the values of headers and the verify token are not shown."""
    values = {name: getattr(endpoint, name) for name in EndpointForm.base_fields if name != "verify_token"}
    lists = {name: values[name] or [] for name in ("phone_number_ids", "waba_ids", "statuses")}
    return {
        **values,
        **lists,
        "headers": dict.fromkeys(signed_request.header_names(endpoint), signed_request.MASK),
    }


class RotateForm(forms.Form):
    """A new signing secret."""

    overlap_hours = forms.IntegerField(
        label="Hours for which the old secret signs too",
        min_value=0,
        max_value=168,
        initial=24,
        widget=forms.NumberInput(attrs={"type": "range", "step": "1", "data-shows": "#overlap"}),
    )


class ExampleForm(forms.Form):
    """An example event to send."""

    event_type = forms.ChoiceField(
        label="Event", choices=[(name, name) for name in EVENT_TYPES], initial="message.inbound"
    )


class PeriodForm(RecoverForm):
    """Deliveries of the last hours, or of a period in the person's time zone, to send again."""

    since = forms.DateTimeField(label="Or since", required=False, widget=_MOMENT)
    until = forms.DateTimeField(label="Until", required=False, widget=_MOMENT)

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._zone = zone
        self.fields["hours"].required = False
        self.fields[
            "since"
        ].help_text = f"In place of the last hours. Times in {now().astimezone(zone).tzname()}."
        self.fields["until"].help_text = "Left empty: until now."

    def full_clean(self) -> None:
        with timezone.override(self._zone):
            super().full_clean()

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        since, until = given.get("since"), given.get("until")
        if until and not since:
            self.add_error("since", "Say since when.")
        elif since and since >= (until or now()):
            self.add_error("since", "This is not before the end.")
        elif not since and not given.get("hours") and not self.errors:
            self.add_error("hours", "Say how many hours, or since when.")
        return given

    def range(self) -> dict[str, Any]:
        since, until = self.cleaned_data["since"], self.cleaned_data["until"]
        if since is None:
            return super().range()
        return {"begin": since, "end": until or now(), "statuses": self.cleaned_data["status"]}
