"""The form of a webhook endpoint: every setting of the API that a person can change in the console."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from webhooks.events.types import ALL, EVENT_TYPES, STATUSES
from webhooks.models import Endpoint
from webhooks.requests import custom_headers
from webhooks.serializers import HIGHEST_RATE, LONGEST_TIMEOUT

RECOMMENDED = ("message.inbound", "message.status")
"""What a conversation needs; `*` also sends the echo of every own message."""
_SEPARATORS = re.compile(r"[\s,;]+")


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


class IdsField(forms.CharField):
    """Ids with spaces, commas or line ends between them."""

    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "inputmode": "numeric"})

    def to_python(self, value: Any) -> Any:
        found = [each for each in _SEPARATORS.split(super().to_python(value) or "") if each]
        if not all(each.isascii() and each.isdecimal() for each in found):
            raise ValidationError("An id has digits only.")
        return found

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


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
    headers = LinesField(
        label="Headers",
        required=False,
        help_text=f"“Name: value” in each line, sent with every request. Values are stored encrypted and shown as "
        f"{custom_headers.MASK}, which keeps them.",
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
        help_text="Only for the platform's own format. Its handshake shows it to your server.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    ADVANCED: tuple[str, ...] = (
        "phone_number_ids",
        "waba_ids",
        "headers",
        "timeout_seconds",
        "rate_per_second",
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
        for name in ("phone_number_ids", "waba_ids", "statuses", "headers", "uid"):
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
            (Endpoint.Format.META, "The platform's own notifications, with a handshake instead of a ping"),
        ],
        initial=Endpoint.Format.ENVELOPE,
        required=False,
    )

    ADVANCED = ("format", *EndpointForm.ADVANCED)

    def body(self) -> dict[str, Any]:
        body = super().body()
        body["format"] = body["format"] or Endpoint.Format.ENVELOPE
        return body


def stored(endpoint: Endpoint) -> dict[str, Any]:
    """What the form of an endpoint begins with; the values of headers and the verify token are not shown."""
    values = {name: getattr(endpoint, name) for name in EndpointForm.base_fields if name != "verify_token"}
    lists = {name: values[name] or [] for name in ("phone_number_ids", "waba_ids", "statuses")}
    return {**values, **lists, "headers": dict.fromkeys(custom_headers.names(endpoint), custom_headers.MASK)}
