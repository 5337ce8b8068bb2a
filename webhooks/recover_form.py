"""The form that replays an endpoint's deliveries of the last hours, on staff pages and on console pages."""

from datetime import timedelta
from typing import Any

from django import forms

from gateway.clock import now
from webhooks import replay
from webhooks.models import Delivery


class RecoverForm(forms.Form):
    """The form's choices: which deliveries of which hours to send again."""

    hours = forms.IntegerField(label="Of the last hours", min_value=1, max_value=8_760, initial=24)
    status = forms.MultipleChoiceField(
        label="Which",
        choices=[
            (Delivery.Status.DEAD, "Given up"),
            (Delivery.Status.FAILED, "Failed, still being retried"),
            (Delivery.Status.PENDING, "Waiting"),
            (Delivery.Status.DELIVERED, "Delivered"),
            (replay.MISSED, "Never sent: the endpoint was not active, did not exist or did not select them"),
        ],
        initial=list(replay.DEFAULT_STATUSES),
        widget=forms.CheckboxSelectMultiple,
    )

    def range(self) -> dict[str, Any]:
        """The chosen range and statuses, as arguments of `replay_endpoint`."""
        end = now()
        return {
            "begin": end - timedelta(hours=self.cleaned_data["hours"]),
            "end": end,
            "statuses": self.cleaned_data["status"],
        }
