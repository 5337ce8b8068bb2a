"""Template filters of billing: amounts in rupees, months and dates as India names them."""

from datetime import date, datetime

from django import template

from billing.pricing.money import rupees
from billing.pricing.periods import Period, ist_date

register = template.Library()
register.filter("rupees", rupees)


@register.filter
def month_name(period: str) -> str:
    """`2026-11` as `November 2026`."""
    return Period.parse(period).name


@register.filter
def indian_date(at: datetime | date) -> str:
    """The date in India of a moment, e.g. `1 Dec 2026`."""
    day = ist_date(at) if isinstance(at, datetime) else at
    return f"{day.day} {day:%b %Y}"
