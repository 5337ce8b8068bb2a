"""GST on an invoice: place of supply, taxes, and the format of invoice numbers. The rate is part of the terms. Pure
functions.

Sources: IGST Act section 12(2), and section 8 for supplies to a special economic zone; CGST rules 46(b) and 46(f).
docs/accounting.md lists what an accountant has to confirm.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from billing.pricing.money import rounded_share
from tenants.signup.tax_ids import STATES

SupplyType = Literal["intra_state", "inter_state", "export"]

UNION_TERRITORIES = {"04", "26", "31", "35", "38", "97"}
"""The codes of union territories without legislature, and of "other territory". UTGST replaces SGST in these places
(UTGST Act section 2).
"""
FOREIGN = "96"
RATES = (5, 12, 18, 28, 40)
"""Tax rates of services, in percent. Nil-rated and exempt supplies are left out, so table 8 of GSTR-1 stays empty."""

NUMBER_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9/-]{0,15}")
"""Rule 46(b): at most 16 characters, which are letters, digits, `-` or `/`."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Place of supply and kind of tax."""

    state_code: str
    kind: SupplyType
    zero_rated: bool = False
    endorsement: str = ""

    @property
    def place(self) -> str:
        """The place of supply as printed on invoices, such as `29-Karnataka`."""
        name = "Other Country" if self.state_code == FOREIGN else STATES[self.state_code]
        return f"{self.state_code}-{name}"


@dataclass(frozen=True, slots=True)
class Taxes:
    """The taxes of a document in paise. `sgst_paise` is UTGST when the place of supply is one of
    `UNION_TERRITORIES`.
    """

    cgst_paise: int
    sgst_paise: int
    igst_paise: int
    place_code: str
    percent: int
    """The rate of the supply."""

    @property
    def total_paise(self) -> int:
        return self.cgst_paise + self.sgst_paise + self.igst_paise

    def like(self, tax_paise: int) -> "Taxes":
        """Split another amount of tax in the same way."""
        if self.cgst_paise:
            half = tax_paise // 2
            return replace(self, cgst_paise=tax_paise - half, sgst_paise=half)
        return replace(self, igst_paise=tax_paise)

    def rows(self) -> list["TaxRow"]:
        """The charged taxes, as responses and invoices list them."""
        half = self.percent / 2
        rows = (
            TaxRow("CGST", half, self.cgst_paise),
            TaxRow("UTGST" if self.place_code in UNION_TERRITORIES else "SGST", half, self.sgst_paise),
            TaxRow("IGST", self.percent, self.igst_paise),
        )
        return [row for row in rows if row.amount_paise]


@dataclass(frozen=True, slots=True)
class TaxRow:
    """One tax of a document."""

    type: str
    rate: float
    amount_paise: int

    @property
    def percent(self) -> float:
        """The rate, an int when it is whole: 9, 18, 4.5."""
        return int(self.rate) if self.rate == int(self.rate) else self.rate


def supply(
    *,
    seller_state: str,
    gstin_state: str | None,
    address_state: str | None,
    is_sez: bool,
    foreign: bool = False,
    undertaking: str = "",
) -> Supply:
    """The place of supply (IGST Act section 12(2)): the State of the GSTIN, else of the recorded address, else of the
    seller.

    Supplies to a special economic zone are inter-state even within the seller's State. Such supplies and exports have
    IGST, or no tax under a letter of undertaking (`undertaking` is its number). Rule 46 defines the text of the
    endorsement.
    """
    paid = (
        f"under letter of undertaking {undertaking} without payment of integrated tax"
        if undertaking
        else "on payment of integrated tax"
    )
    if foreign:
        return Supply(FOREIGN, "export", bool(undertaking), f"Supply meant for export {paid}")
    state = gstin_state or address_state or seller_state
    if is_sez:
        words = f"Supply to SEZ unit or SEZ developer for authorised operations {paid}"
        return Supply(state, "inter_state", bool(undertaking), words)
    return Supply(state, "intra_state" if state == seller_state else "inter_state")


def credited_tax(
    *, total_paise: int, taxable_left: int, taxes_left: int, intra_state: bool, percent: int
) -> int:
    """The tax in a credit of `total_paise`, at the rate `percent`. It is at most `taxes_left`. It is raised where
    needed so that the taxable part does not exceed `taxable_left`.

    Within a State the tax is even, so that CGST and SGST are equal whole paise.
    """
    if taxes_left == 0:
        return 0
    unit = 2 if intra_state else 1
    share = rounded_share(total_paise, percent, (100 + percent) * unit)
    least = -(-(total_paise - taxable_left) // unit)
    return unit * max(least, min(share, taxes_left // unit))


def document_number(prefix: str, financial_year: str, serial: int) -> str:
    """A number such as `WG/2627/000123`. Raises ValueError for a number that rule 46(b) does not allow."""
    number = f"{prefix}/{financial_year}/{serial:06d}"
    if not NUMBER_FORM.fullmatch(number):
        raise ValueError(f"{number!r} is not a document number of at most 16 letters, digits, - and /.")
    return number
