"""The plan: a flat monthly price per number, with GST added (specification 1). Pure functions.

Terms are the prices, and have a start (`terms.py`). `Terms()` are the first terms and stay valid for what was billed
under them: a new price or rate is a new version, never a change here.
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
    """How many numbers the base price includes."""
    gst_percent: int = 18
    due_days: int = 7
    version: str | None = None
    """The id of the version. None for the first terms."""

    def as_json(self) -> dict[str, Any]:
        """The terms as responses and snapshots have them."""
        return {"code": CODE, "currency": CURRENCY, **asdict(self), "tax_inclusive": False}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """The terms from a snapshot. A member that an old snapshot lacks had its default value at that time."""
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
    """The charge of a month in paise. `half_tax_paise` is the CGST, and equally the SGST; `tax_paise` is the IGST.

    When a half is not a whole number of paise, CGST and SGST together differ from IGST by one paisa.
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
    """The charge of a month with this many active numbers, with full GST. Without numbers it is zero."""
    first = "First number" if terms.included_numbers == 1 else f"First {terms.included_numbers} numbers"
    further = max(0, numbers - terms.included_numbers)
    lines = (
        ChargeLine(first, int(numbers > 0), terms.first_number_paise),
        ChargeLine("Further numbers", further, terms.additional_number_paise),
    )
    return Charge(numbers, tuple(line for line in lines if line.amount_paise), terms)
