"""Forms of the webhook pages: an endpoint, its secret's rotation, replays, example events, filters of the lists."""

from datetime import timedelta
from typing import Any

from django import forms

from gateway.clock import now
from webhooks import replay
from webhooks.events.types import ALL, EVENT_TYPES
from webhooks.models import Delivery

RECOMMENDED = ("message.inbound", "message.status")
"""What a conversation needs; `*` also sends the echo of every own message."""
_TYPES = [(name, name) for name in EVENT_TYPES]


class EndpointForm(forms.Form):
    """An endpoint to create or change."""

    url = forms.CharField(
        label="URL",
        max_length=2048,
        help_text="It is pinged with a challenge at once, and must answer with it.",
        widget=forms.URLInput(attrs={"autocomplete": "off", "placeholder": "https://example.com/webhooks"}),
    )
    description = forms.CharField(label="Description", max_length=500, required=False)
    event_types = forms.MultipleChoiceField(
        label="Events",
        choices=[(ALL, "Every event"), *_TYPES],
        initial=list(RECOMMENDED),
        widget=forms.CheckboxSelectMultiple,
    )


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

    event_type = forms.ChoiceField(label="Event", choices=_TYPES, initial="message.inbound")


class RecoverForm(forms.Form):
    """Deliveries of a time range to send again."""

    hours = forms.IntegerField(label="Of the last hours", min_value=1, max_value=8_760, initial=24)
    status = forms.MultipleChoiceField(
        label="Which",
        choices=[
            (Delivery.Status.DEAD, "Given up"),
            (Delivery.Status.FAILED, "Failed, still being retried"),
            (Delivery.Status.PENDING, "Waiting"),
            (Delivery.Status.DELIVERED, "Delivered"),
            (replay.MISSED, "Never sent: the endpoint did not exist or did not want them"),
        ],
        initial=list(replay.DEFAULT_STATUSES),
        widget=forms.CheckboxSelectMultiple,
    )

    def range(self) -> dict[str, Any]:
        """The arguments of `replay_endpoint`."""
        end = now()
        return {
            "begin": end - timedelta(hours=self.cleaned_data["hours"]),
            "end": end,
            "statuses": self.cleaned_data["status"],
        }


class DeliveryFilter(forms.Form):
    """The filter above the list of deliveries."""

    status = forms.ChoiceField(
        label="Status",
        required=False,
        choices=[
            ("", "Any"),
            (Delivery.Status.DELIVERED, "Delivered"),
            (Delivery.Status.PENDING, "Waiting"),
            (Delivery.Status.FAILED, "Failed, retried"),
            (Delivery.Status.DEAD, "Given up"),
        ],
    )
    event_type = forms.ChoiceField(label="Event", required=False, choices=[("", "Any"), *_TYPES])
    endpoint = forms.UUIDField(required=False, widget=forms.HiddenInput)


class EventFilter(forms.Form):
    """The filter above the list of events."""

    type = forms.ChoiceField(label="Event", required=False, choices=[("", "Any"), *_TYPES])
    wa_id = forms.CharField(label="Customer's number", required=False, max_length=32)
    wamid = forms.CharField(label="Message id", required=False, max_length=512)
