"""Console page of figures: messages and webhook deliveries of the last days, as bars and as a table."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gateway.clock import now
from gateway.roles import Area
from tenants.console.frame import Visit, console_page
from webhooks.figures import reading
from webhooks.figures.reading import Sums

DAYS = (7, 30, 90)
PLOT_HEIGHT = 120


class RangeForm(forms.Form):
    """How many days are shown."""

    days = forms.TypedChoiceField(
        label="Show", coerce=int, choices=[(days, f"{days} days") for days in DAYS], initial=DAYS[0]
    )


@dataclass(frozen=True, slots=True)
class Day:
    """One day's figures, and the heights of its bars in the plot."""

    start: datetime
    received: int
    sent: int
    delivered: int
    read: int
    failed: int
    failed_codes: str
    webhooks_delivered: int
    webhooks_failed: int
    p95_ms: int | None

    def height(self, most: int) -> dict[str, int]:
        """The bars' heights where `most` messages reach the top."""
        return {
            "sent": PLOT_HEIGHT * self.sent // most,
            "delivered": PLOT_HEIGHT * self.delivered // most,
            "failed": PLOT_HEIGHT * self.failed // most,
        }


@require_safe
@console_page(Area.INTEGRATION)
def figures(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Figures by day, in UTC, of the range that was chosen."""
    form = RangeForm(request.GET or None)
    days = form.cleaned_data["days"] if form.is_valid() else DAYS[0]
    end = now()
    found = reading.read(
        tenant_id=visit.tenant.id,
        environment=visit.environment,
        begin=end - timedelta(days=days - 1),
        end=end,
        interval="day",
        groups=(),
        equal={},
    )
    by_day = _days(found.messages, found.webhooks, end, days)
    most = max(1, *(day.sent for day in by_day))
    return render(
        request,
        "console/webhooks/figures.html",
        {
            "form": form if form.is_bound else RangeForm(initial={"days": days}),
            "rows": by_day[::-1],
            "bars": [(place * 10, day, day.height(most)) for place, day in enumerate(by_day)],
            "width": len(by_day) * 10,
            "height": PLOT_HEIGHT,
            "most": most,
            "any": any(day.sent or day.received or day.webhooks_delivered for day in by_day),
            "as_of": found.as_of,
        },
    )


def _days(messages: list[Sums], webhooks: list[Sums], end: datetime, count: int) -> list[Day]:
    """Every day of the range, oldest first, those without figures too."""
    of_messages = {sums.start: sums for sums in messages}
    of_webhooks = {sums.start: sums for sums in webhooks}
    today = end.replace(hour=0, minute=0, second=0, microsecond=0)
    found = []
    for back in range(count - 1, -1, -1):
        start = today - timedelta(days=back)
        told, hooked = of_messages.get(start, Sums(start, {})), of_webhooks.get(start, Sums(start, {}))
        codes = sorted(told.by_value.get("failed", {}).items(), key=lambda item: -item[1])
        found.append(
            Day(
                start=start,
                received=told.counts.get("received", 0),
                sent=told.counts.get("sent", 0),
                delivered=told.counts.get("delivered", 0),
                read=told.counts.get("read", 0),
                failed=told.counts.get("failed", 0),
                failed_codes=", ".join(f"{code}: {number}" for code, number in codes[:3] if code),
                webhooks_delivered=hooked.counts.get("delivered", 0),
                webhooks_failed=hooked.counts.get("failed", 0),
                p95_ms=hooked.percentile("delivered_ms", 0.95),
            )
        )
    return found
