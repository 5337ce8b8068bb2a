"""The page of the daily ledger: counts of a day's events, of their deliveries by endpoint, and of the day's sends."""

from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console import lists
from console.visit import Visit
from gateway.api.errors import ServiceError
from gateway.clock import now
from messaging.daily_ledger import tally as daily
from messaging.daily_ledger.tally import counting, day_of, refusal_of
from webhooks.models import Endpoint


class LedgerForm(forms.Form):
    """The day to count, in the visit's zone, and optionally one hour of the day."""

    day = forms.DateField(
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        error_messages={"invalid": "Enter a date such as 2026-11-21."},
    )
    hour = forms.TypedChoiceField(
        label="Hour",
        required=False,
        coerce=int,
        empty_value=None,
        choices=[("", "All day"), *((hour, f"{hour:02}:00 to {hour:02}:59") for hour in range(24))],
    )

    def __init__(self, visit: Visit, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.zone = visit.zone
        self.fields["day"].label = f"Day ({visit.zone_name})"

    def clean_day(self) -> date:
        """The chosen day. The default is today."""
        day: date = self.cleaned_data["day"] or now().astimezone(self.zone).date()
        if (refusal := refusal_of(day, self.zone)) is not None:
            raise ValidationError(refusal)
        return day


class Row(NamedTuple):
    """An endpoint's line. Its URL is None for a deleted endpoint."""

    endpoint_id: object
    url: str | None
    line: daily.EndpointLine


def ledger(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the ledger of a day, or of one hour."""
    form = LedgerForm(visit, request.GET)
    wanted = lists.filled_fields(form)
    day = wanted.get("day", now().astimezone(visit.zone).date())
    found, refusal = None, None
    try:
        if not form.errors:
            with counting(instead="Choose an hour of the day.") as counted:
                found = daily.count_events(
                    counted, **visit.scope, span=day_of(day, form.cleaned_data.get("hour"), visit.zone)
                )
    except ServiceError as error:
        refusal = error.text
    return render(
        request,
        "console/messaging/ledger.html",
        {
            "form": form if form.errors else LedgerForm(visit, initial=form.cleaned_data | {"day": day}),
            "day": day,
            "ledger": found,
            "rows": list(_rows(visit, found)) if found else [],
            "any": found
            and (found.events or found.failed or found.unknown or found.refused or found.unanswered),
            "refusal": refusal,
        },
        status=503 if refusal else 200,
    )


def _rows(visit: Visit, found: daily.Ledger) -> Iterator[Row]:
    """The lines by endpoint. One page is enough, because a tenant has at most 20 endpoints in an environment, besides
    deleted endpoints.
    """
    urls = dict(Endpoint.objects.for_environment(**visit.scope).values_list("id", "url"))
    for endpoint_id, line in sorted(found.endpoints.items()):
        yield Row(endpoint_id, urls.get(endpoint_id), line)
