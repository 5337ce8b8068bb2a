"""Billing months: calendar months of Indian time, and the financial year from April to March. Pure functions."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Self

from gateway.clock import IST


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """One calendar month in IST, written `2026-11`."""

    year: int
    month: int

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """The month of a moment."""
        local = moment.astimezone(IST)
        return cls(local.year, local.month)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `2026-11`. Raises ValueError."""
        moment = datetime.strptime(text, "%Y-%m").replace(tzinfo=IST)
        return cls(moment.year, moment.month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @property
    def name(self) -> str:
        """The name for readers, such as `November 2026`."""
        return f"{date(self.year, self.month, 1):%B %Y}"

    @property
    def start(self) -> datetime:
        """The first moment of the month, aware UTC."""
        return datetime(self.year, self.month, 1, tzinfo=IST).astimezone(UTC)

    @property
    def end(self) -> datetime:
        """The first moment after the month, aware UTC."""
        return self.next.start

    @property
    def next(self) -> "Period":
        return Period(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def previous(self) -> "Period":
        return Period(self.year - (self.month == 1), (self.month - 2) % 12 + 1)


def ist_date(moment: datetime) -> date:
    """The Indian date of a moment, as documents and mails show it."""
    return moment.astimezone(IST).date()


def ist_midnight(moment: datetime) -> datetime:
    """The start of the Indian day of a moment."""
    return moment.astimezone(IST).replace(hour=0, minute=0, second=0, microsecond=0)


def indian_date(at: datetime | date) -> str:
    """A date for readers, such as `1 Dec 2026`. A moment is converted to its date in India."""
    day = ist_date(at) if isinstance(at, datetime) else at
    return f"{day.day} {day:%b %Y}"


def financial_year(moment: datetime) -> str:
    """The financial year in IST as four digits: 1 April 2026 to 31 March 2027 is `2627` (rule 46(b))."""
    local = moment.astimezone(IST)
    first = local.year - (local.month < 4)
    return f"{first % 100:02d}{(first + 1) % 100:02d}"
