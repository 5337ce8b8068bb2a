"""GST on an invoice: place of supply, which taxes, and the form of invoice numbers. Pure.

Sources: IGST Act section 12(2), CGST rules 46(b) and 46(f), CGST Act section 8 of the IGST Act for supplies to a
special economic zone. docs/billing.md lists what an accountant has to confirm.
"""

import re
from dataclasses import dataclass
from typing import Literal

from billing.plan import GST_PERCENT, Charge
from tenants.signup.tax_ids import STATES

SupplyType = Literal["intra_state", "inter_state"]

NUMBER_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9/-]{0,15}")
"""Rule 46(b): at most 16 characters, letters, digits, `-` and `/`."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Where a supply takes place, and whether that is within the seller's state."""

    state_code: str
    kind: SupplyType

    @property
    def place(self) -> str:
        """As invoices name it: `29-Karnataka`."""
        return f"{self.state_code}-{STATES[self.state_code]}"


@dataclass(frozen=True, slots=True)
class Taxes:
    """The taxes of an invoice in paise."""

    cgst_paise: int
    sgst_paise: int
    igst_paise: int

    @property
    def total_paise(self) -> int:
        return self.cgst_paise + self.sgst_paise + self.igst_paise

    def rows(self) -> list["TaxRow"]:
        """Those that are charged, as answers and invoices list them."""
        half = GST_PERCENT / 2
        rows = (
            TaxRow("CGST", half, self.cgst_paise),
            TaxRow("SGST", half, self.sgst_paise),
            TaxRow("IGST", GST_PERCENT, self.igst_paise),
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
        """The rate, as an int where it is whole: 9, 18, 4.5."""
        return int(self.rate) if self.rate == int(self.rate) else self.rate


def supply(*, seller_state: str, gstin_state: str | None, address_state: str | None, is_sez: bool) -> Supply:
    """The place of supply (section 12(2)): the GSTIN's state, else that of the address on record, else the seller's.

    A special economic zone is inter-state even within the seller's state.
    """
    state = gstin_state or address_state or seller_state
    return Supply(state, "intra_state" if state == seller_state and not is_sez else "inter_state")


def taxes(charge: Charge, kind: SupplyType) -> Taxes:
    """CGST and SGST in halves within a state, IGST between states."""
    if kind == "intra_state":
        return Taxes(charge.half_tax_paise, charge.half_tax_paise, 0)
    return Taxes(0, 0, charge.tax_paise)


def document_number(prefix: str, financial_year: str, serial: int) -> str:
    """`WG/2627/000123`. Raises ValueError when the prefix or the serial makes it longer than rule 46(b) allows."""
    number = f"{prefix}/{financial_year}/{serial:06d}"
    if not NUMBER_FORM.fullmatch(number):
        raise ValueError(f"{number!r} is no document number of at most 16 letters, digits, - and /.")
    return number
