"""Indian tax ids of businesses: GSTIN and PAN, checked offline (sign-up form, reviewer flags, invoices).

The patterns are those of the GST portal. A GSTIN is a state code, ten characters of PAN, an entity digit, a form letter
(nearly always `Z`) and a Luhn check character over base 36. Two kinds of GSTIN contain no PAN: GSTINs of UN bodies and
embassies (UIN), and GSTINs of tax deductors (TDS, from a TAN). Only the portal knows whether a tax id is registered.
"""

import re
from dataclasses import dataclass
from typing import Literal

from stdnum import luhn
from stdnum.exceptions import ValidationError
from stdnum.in_ import pan as pan_format

STATES = {
    "01": "Jammu and Kashmir",
    "02": "Himachal Pradesh",
    "03": "Punjab",
    "04": "Chandigarh",
    "05": "Uttarakhand",
    "06": "Haryana",
    "07": "Delhi",
    "08": "Rajasthan",
    "09": "Uttar Pradesh",
    "10": "Bihar",
    "11": "Sikkim",
    "12": "Arunachal Pradesh",
    "13": "Nagaland",
    "14": "Manipur",
    "15": "Mizoram",
    "16": "Tripura",
    "17": "Meghalaya",
    "18": "Assam",
    "19": "West Bengal",
    "20": "Jharkhand",
    "21": "Odisha",
    "22": "Chhattisgarh",
    "23": "Madhya Pradesh",
    "24": "Gujarat",
    "26": "Dadra and Nagar Haveli and Daman and Diu",
    "27": "Maharashtra",
    "29": "Karnataka",
    "30": "Goa",
    "31": "Lakshadweep",
    "32": "Kerala",
    "33": "Tamil Nadu",
    "34": "Puducherry",
    "35": "Andaman and Nicobar Islands",
    "36": "Telangana",
    "37": "Andhra Pradesh",
    "38": "Ladakh",
    "97": "Other Territory",
    "99": "Centre Jurisdiction",
}
"""GST state codes. The address of a business is in one of `ADDRESS_STATES`."""
ADDRESS_STATES = {code: name for code, name in STATES.items() if code < "90"}
_FORMER = {"25": "26", "28": "37"}
"""The former codes of merged or divided states, each with its present code. Older GSTINs begin with the former code."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PAN = re.compile(r"[A-Z]{5}\d{4}[A-Z]", re.ASCII)
_PAN_BASED = re.compile(r"\d{2}[A-Z]{5}\d{4}[A-Z][1-9A-Z][Z1-9A-J][0-9A-Z]")
_TAN_BASED = re.compile(r"\d{2}[A-Z]{4}[A-Z0-9]\d{4}[A-Z][1-9A-Z]D[0-9A-Z]")
_UIN = re.compile(r"\d{4}[A-Z]{3}\d{5}(?:UN|ON|NR)[0-9A-Z]")


@dataclass(frozen=True, slots=True)
class TaxId:
    """A checked tax id. `pan` is the PAN itself, or the PAN inside a GSTIN. `state_code` is the state code
    of a GSTIN.
    """

    kind: Literal["gstin", "pan"]
    number: str
    pan: str | None
    state_code: str | None
    unusual_form: bool

    @property
    def holder_letter(self) -> str | None:
        """The fourth letter of the PAN: C company, F firm or LLP, P individual, H family, T trust, and others. None
        without a PAN.
        """
        return self.pan[3] if self.pan else None

    @property
    def holder(self) -> str | None:
        """The kind of holder that the PAN names, in words. None without a PAN."""
        return pan_format.info(self.pan)["holder_type"] if self.pan else None


class InvalidTaxIdError(ValueError):
    """The text is neither a GSTIN nor a PAN. The message gives the reason to the person who typed it."""


def parse(text: str) -> TaxId:
    """Parse a tax id. Blanks and hyphens are ignored. Raises `InvalidTaxIdError`."""
    number = re.sub(r"[\s-]", "", text).upper()
    if len(number) == 10:
        return _parse_pan(number)
    if len(number) == 15:
        return _parse_gstin(number)
    raise InvalidTaxIdError("A GSTIN has 15 characters, a PAN has 10.")


def _parse_pan(number: str) -> TaxId:
    if not _PAN.fullmatch(number):
        raise InvalidTaxIdError("This is not a PAN: five letters, four digits, one letter.")
    if number[5:9] == "0000":
        raise InvalidTaxIdError("This is not a PAN: its four digits begin at 0001.")
    try:
        return TaxId("pan", pan_format.validate(number), number, None, unusual_form=False)
    except ValidationError:
        raise InvalidTaxIdError(
            "This is not a PAN: its fourth letter stands for the kind of holder, and this one is not in use."
        ) from None


def _parse_gstin(number: str) -> TaxId:
    pan_based = _PAN_BASED.fullmatch(number) is not None and pan_format.is_valid(number[2:12])
    if not (pan_based or _TAN_BASED.fullmatch(number) or _UIN.fullmatch(number)):
        raise InvalidTaxIdError("This does not have the form of a GSTIN, e.g. 29AAACI1681G1ZL.")
    state_code = _FORMER.get(number[:2], number[:2])
    if state_code not in STATES:
        raise InvalidTaxIdError("A GSTIN begins with the two digits of a state.")
    if not luhn.is_valid(number, _ALPHABET):
        raise InvalidTaxIdError(
            "The last character does not fit the rest: please check for a typing mistake."
        )
    return TaxId(
        "gstin",
        number,
        number[2:12] if pan_based else None,
        state_code,
        unusual_form=not (pan_based and number[13] == "Z"),
    )
