"""Console page of analytics: messages and webhook deliveries of the last days, as charts and as a table."""

from calendar import timegm
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple, cast

import orjson
from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from console.visit import Visit
from gateway.clock import now
from messaging.models import MessageTemplate
from phone_numbers.models import PhoneNumber
from tenants.labels import milliseconds
from webhooks.analytics import statistics
from webhooks.analytics.statistics import Sums

DAYS = (7, 30, 90)
PLOT_HEIGHT = 120
BAR_WIDTH = 5
MOST_ADS = 20
MOST_CHOICES = 200
"""The maximum number of phone numbers, and of templates, in the filter. The filter always has the chosen number and
template too.
"""
DAY_WIDTH = 3 * (BAR_WIDTH + 1) + 4


class RangeForm(forms.Form):
    """The filter by days, phone number and template. Number and template filter messages, not webhook deliveries."""

    days = forms.TypedChoiceField(
        label="Show",
        coerce=int,
        required=False,
        empty_value=None,
        choices=[(days, f"{days} days") for days in DAYS],
        initial=DAYS[0],
    )
    phone_number_id = forms.ChoiceField(label="Number", required=False)
    template = forms.ChoiceField(label="Template", required=False)

    def __init__(self, visit: Visit, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        numbers = PhoneNumber.objects.filter(**visit.scope).order_by("id")
        templates = MessageTemplate.objects.filter(**visit.scope).order_by("name").distinct()
        self._offer("phone_number_id", numbers.values_list("phone_number_id", "display_phone_number"))
        self._offer("template", templates.values_list("name", "name"))

    def _offer(self, name: str, rows: QuerySet[Any, tuple[str, str]]) -> None:
        offered = dict(rows[:MOST_CHOICES])
        if (chosen := self.data.get(name)) and chosen not in offered:
            offered |= dict(rows.filter(**{"name" if name == "template" else name: chosen})[:1])
        choices = [("", "All"), *((value, label or value) for value, label in offered.items())]
        cast("forms.ChoiceField", self.fields[name]).choices = choices

    def wanted(self) -> tuple[int, dict[str, str]]:
        """The chosen number of days, and the chosen phone number and template. Invalid choices are left out."""
        chosen = self.cleaned_data if self.is_valid() else {}
        narrowed = {name: chosen[name] for name in ("phone_number_id", "template") if chosen.get(name)}
        return chosen.get("days") or DAYS[0], narrowed


@dataclass(frozen=True, slots=True)
class Day:
    """One day's figures."""

    start: date
    received: int
    sent: int
    delivered: int
    read: int
    failed: int
    failed_codes: str
    webhooks_delivered: int
    webhooks_failed: int
    p95_ms: int | None


class Point(NamedTuple):
    """A point in the plot of response times. `said` is the tooltip."""

    said: str
    x: int
    y: int


class Bar(NamedTuple):
    """A bar in a plot, in the plot's units. `said` is the tooltip."""

    kind: str
    said: str
    x: int
    y: int
    height: int


Counts = Callable[[Day], Mapping[str, int]]
"""A day's counts to plot, by the name of the bar."""


def _messages(day: Day) -> dict[str, int]:
    return {"sent": day.sent, "delivered": day.delivered, "failed": day.failed}


def _webhooks(day: Day) -> dict[str, int]:
    return {"delivered": day.webhooks_delivered, "failed": day.webhooks_failed}


def _chart(days: Sequence[Day], series: Mapping[str, Sequence[int | None]], unit: str = "") -> str:
    """The values of a plot as JSON for `chart.js`."""
    return orjson.dumps(
        {
            "days": [timegm(day.start.timetuple()) for day in days],
            "series": [{"name": name, "values": values} for name, values in series.items()],
            "unit": unit,
        }
    ).decode()


class Plot:
    """A bar chart by day, oldest first. Each count of a day has a bar."""

    def __init__(self, days: Sequence[Day], counts: Counts) -> None:
        self._counts = counts
        self.kinds = list(counts(days[0]))
        self.most = max(1, *(max(counts(day).values()) for day in days))
        self.width, self.height = len(days) * DAY_WIDTH, PLOT_HEIGHT
        self.first, self.last = days[0].start, days[-1].start
        self.chart = _chart(days, {kind: [counts(day)[kind] for day in days] for kind in self.kinds})
        self.bars = [bar for place, day in enumerate(days) for bar in self._bars(place * DAY_WIDTH, day)]

    def _bars(self, left: int, day: Day) -> Iterator[Bar]:
        for place, (kind, count) in enumerate(self._counts(day).items()):
            height = -(-PLOT_HEIGHT * count // self.most)
            said = f"{count:,} {kind} on {day.start.day} {day.start:%B}"
            yield Bar(kind, said, left + 2 + place * (BAR_WIDTH + 1), PLOT_HEIGHT - height, height)


class TimePlot:
    """A line plot by day. Each point is the 95th percentile of the response times of the day's deliveries."""

    def __init__(self, days: Sequence[Day]) -> None:
        times = [day.p95_ms for day in days if day.p95_ms is not None]
        self.most = max(times, default=0)
        self.chart = _chart(days, {"time": [day.p95_ms for day in days]}, " ms")
        self.width, self.height = len(days) * DAY_WIDTH, PLOT_HEIGHT
        self.points = [
            Point(
                f"{milliseconds(day.p95_ms)} on {day.start.day} {day.start:%B}",
                place * DAY_WIDTH + DAY_WIDTH // 2,
                PLOT_HEIGHT - PLOT_HEIGHT * day.p95_ms // max(1, self.most),
            )
            for place, day in enumerate(days)
            if day.p95_ms is not None
        ]


def figures(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the figures by day for the chosen range."""
    form = RangeForm(visit, request.GET or None)
    days, narrowed = form.wanted()
    found = read_days(visit, days, narrowed)
    by_day = _days(visit, found, days)
    return render(
        request,
        "console/webhooks/figures.html",
        {
            "form": form if form.is_bound else RangeForm(visit, initial={"days": days}),
            "filtered": bool(narrowed),
            "rows": by_day[::-1],
            "plots": [("Messages", Plot(by_day, _messages)), ("Webhook deliveries", Plot(by_day, _webhooks))],
            "times": TimePlot(by_day),
            "any": any(day.sent or day.received or day.webhooks_delivered for day in by_day),
            "ads": _ads(found.messages),
            "as_of": found.as_of,
        },
    )


def _ads(messages: list[Sums]) -> list[tuple[str, int]]:
    """The ads and posts that brought the most messages in the range, with the number of messages."""
    counts: Counter[str] = Counter()
    for sums in messages:
        counts.update(sums.by_value.get("referral", {}))
    return counts.most_common(MOST_ADS)


def last_days(visit: Visit) -> SafeString | None:
    """The plot of the last days on the home page. None when no message was sent in these days."""
    found = read_days(visit, DAYS[0])
    by_day = _days(visit, found, DAYS[0])
    if not any(day.sent for day in by_day):
        return None
    return render_to_string(
        "console/webhooks/last_days.html",
        {"plot": Plot(by_day, _messages), "about": "Messages", "days": DAYS[0], "console": visit},
    )


def read_days(
    visit: Visit, days: int, equal: Mapping[str, str] | None = None, *, groups: Sequence[str] = ()
) -> statistics.Figures:
    """The figures of the last days in the visit's zone, today included."""
    end = now()
    # In calendar days: a day has 23 or 25 hours when the clocks change.
    first = end.astimezone(visit.zone).date() - timedelta(days=days - 1)
    return statistics.read(
        **visit.scope,
        begin=datetime.combine(first, time(), visit.zone),
        end=end,
        interval="day",
        groups=groups,
        equal=equal or {},
        zone=visit.zone,
    )


def _days(visit: Visit, figures: statistics.Figures, count: int) -> list[Day]:
    """The figures of every day of the range in the visit's zone, oldest first, including days without messages."""
    messages_by_day = {sums.start.date(): sums for sums in figures.messages}
    webhooks_by_day = {sums.start.date(): sums for sums in figures.webhooks}
    none = Sums(now(), {})
    today = none.start.astimezone(visit.zone).date()
    found = []
    for back in range(count - 1, -1, -1):
        start = today - timedelta(days=back)
        message_sums, webhook_sums = messages_by_day.get(start, none), webhooks_by_day.get(start, none)
        codes = sorted(message_sums.by_value.get("failed", {}).items(), key=lambda item: -item[1])
        found.append(
            Day(
                start=start,
                received=message_sums.counts.get("received", 0),
                sent=message_sums.counts.get("sent", 0),
                delivered=message_sums.counts.get("delivered", 0),
                read=message_sums.counts.get("read", 0),
                failed=message_sums.counts.get("failed", 0),
                failed_codes=", ".join(
                    f"{code}:\N{NO-BREAK SPACE}{number:,}" for code, number in codes[:3] if code
                ),
                webhooks_delivered=webhook_sums.counts.get("delivered", 0),
                webhooks_failed=webhook_sums.counts.get("failed", 0),
                p95_ms=webhook_sums.percentile("delivered_ms", 0.95),
            )
        )
    return found
