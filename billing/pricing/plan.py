"""The plan: a flat monthly price per number, GST on top (specification 1). Pure.

Prices are whole rupees, so half of the tax is a whole number of paise and nothing is lost in rounding.
"""

from dataclasses import dataclass
from typing import Any

from billing.pricing.money import rounded_share

CODE = "per_number_monthly"
CURRENCY = "INR"
FIRST_NUMBER_PAISE = 50_000
ADDITIONAL_NUMBER_PAISE = 25_000
GST_PERCENT = 18

TERMS: dict[str, Any] = {
    "code": CODE,
    "currency": CURRENCY,
    "first_number_paise": FIRST_NUMBER_PAISE,
    "additional_number_paise": ADDITIONAL_NUMBER_PAISE,
    "gst_percent": GST_PERCENT,
    "tax_inclusive": False,
}


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
    """What a month of this many numbers costs, in paise. `half_tax_paise` is CGST, and SGST; IGST is both."""

    numbers: int
    lines: tuple[ChargeLine, ...]
    subtotal_paise: int
    half_tax_paise: int

    @property
    def tax_paise(self) -> int:
        return 2 * self.half_tax_paise

    @property
    def total_paise(self) -> int:
        return self.subtotal_paise + self.tax_paise


def charge_for(numbers: int) -> Charge:
    """The charge of a month with this many active numbers, with full GST; none costs nothing."""
    lines = []
    if numbers > 0:
        lines.append(ChargeLine("First number", 1, FIRST_NUMBER_PAISE))
    if numbers > 1:
        lines.append(ChargeLine("Further numbers", numbers - 1, ADDITIONAL_NUMBER_PAISE))
    subtotal = sum(line.amount_paise for line in lines)
    return Charge(numbers, tuple(lines), subtotal, rounded_share(subtotal, GST_PERCENT, 200))
