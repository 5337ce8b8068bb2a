"""The plan: a flat monthly price per number, GST on top (specification 1). Pure.

What it costs are terms, which have a start (`terms.py`). `Terms()` are the first ones, and for what was billed under
them they stay: a new price or rate is a new version, never a change here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from billing.pricing.money import rounded_share

CODE = "per_number_monthly"
CURRENCY = "INR"


@dataclass(frozen=True, slots=True)
class Terms:
    """Prices of a month in paise without GST, and the days to pay."""

    first_number_paise: int = 50_000
    additional_number_paise: int = 25_000
    included_numbers: int = 1
    """How many numbers the first price is for."""
    gst_percent: int = 18
    due_days: int = 7
    version: str | None = None
    """The id of the version; None: the first terms."""

    def as_json(self) -> dict[str, Any]:
        """As answers show them and snapshots keep them."""
        return {"code": CODE, "currency": CURRENCY, **asdict(self), "tax_inclusive": False}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """The terms that a snapshot kept. What one did not keep yet was the same in all of its time."""
        return cls(**{one.name: kept[one.name] for one in fields(cls) if one.name in kept})


@dataclass(frozen=True, slots=True)
class ChargeLine:
    """One line of a charge, in paise."""

    description: str
    quantity: int
    unit_paise: int

    @property
    def amount_paise(self) -> int:
        return self.quantity * self.unit_paise


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of a month for so many numbers, in paise. `half_tax_paise` is CGST, and SGST; `tax_paise` is IGST.

    Where a half is no whole number of paise, the two of a state differ from IGST by one paisa.
    """

    numbers: int
    lines: tuple[ChargeLine, ...]
    terms: Terms

    @property
    def subtotal_paise(self) -> int:
        return sum(line.amount_paise for line in self.lines)

    @property
    def half_tax_paise(self) -> int:
        return rounded_share(self.subtotal_paise, self.terms.gst_percent, 200)

    @property
    def tax_paise(self) -> int:
        return rounded_share(self.subtotal_paise, self.terms.gst_percent, 100)

    @property
    def total_paise(self) -> int:
        return self.subtotal_paise + self.tax_paise


def charge_for(numbers: int, terms: Terms) -> Charge:
    """The charge of a month with this many active numbers, with full GST; none costs nothing."""
    first = "First number" if terms.included_numbers == 1 else f"First {terms.included_numbers} numbers"
    further = max(0, numbers - terms.included_numbers)
    lines = (
        ChargeLine(first, int(numbers > 0), terms.first_number_paise),
        ChargeLine("Further numbers", further, terms.additional_number_paise),
    )
    return Charge(numbers, tuple(line for line in lines if line.amount_paise), terms)
