"""Money as integer paise: rounded shares, and amounts in Indian figures and words. Pure functions."""

from decimal import Decimal

from babel.numbers import format_currency
from num2words import num2words

CURRENCY = "INR"
SMALLEST_PAISE = 100
"""The smallest amount of a debit, a link or a refund: one rupee. A smaller debt is not collected, and its tenant is not
late.
"""


def rounded_share(amount_paise: int, numerator: int, denominator: int) -> int:
    """`amount × numerator ÷ denominator` in paise, half a paisa rounded up. Amounts are not negative."""
    return (2 * amount_paise * numerator + denominator) // (2 * denominator)


def rupees(amount_paise: int) -> str:
    """An amount for readers: `₹12,34,567.50`, grouped by lakh and crore, always two decimals."""
    return str(format_currency(Decimal(amount_paise) / 100, CURRENCY, locale="en_IN"))


def plain(amount_paise: int) -> str:
    """An amount for programs, in rupees: `-1234567.50`."""
    return f"{Decimal(amount_paise) / 100:.2f}"


def in_words(amount_paise: int) -> str:
    """`Rupees one thousand one hundred and eighty only`, with lakh and crore, and paise only when there are any."""
    rupees, paise = divmod(amount_paise, 100)
    words = f"Rupees {_words(rupees)}"
    if paise:
        words += f" and paise {_words(paise)}"
    return f"{words} only"


def _words(number: int) -> str:
    # The currency form of num2words reads an int as paise, so the cardinal form is used. Decimal avoids floats. Indian
    # documents usually have no commas and hyphens in words.
    return str(num2words(Decimal(number), lang="en_IN")).replace(",", "").replace("-", " ")
