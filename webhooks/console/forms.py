"""Forms of the webhook pages: a secret's rotation, replays, example events, filters of the lists."""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone

from gateway.clock import now
from tenants.console.filters import CustomerNumberField
from tenants.console.frame import TIME_ZONES
from webhooks import replay
from webhooks.events.types import EVENT_TYPES
from webhooks.models import Delivery

_Moment = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
_TYPES = [(name, name) for name in EVENT_TYPES]


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


class PeriodForm(RecoverForm):
    """Deliveries of the last hours, or of a period in the person's time zone, to send again."""

    since = forms.DateTimeField(label="Or since", required=False, widget=_Moment)
    until = forms.DateTimeField(label="Until", required=False, widget=_Moment)

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._zone = zone
        self.fields["hours"].required = False
        self.fields["since"].help_text = f"In place of the last hours. Times in {TIME_ZONES[zone.key]}."
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
    wa_id = CustomerNumberField()
    wamid = forms.CharField(label="Message id", required=False, max_length=512)
