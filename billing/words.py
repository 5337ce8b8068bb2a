"""An amount in words, as Indian invoices carry it. Pure."""

from decimal import Decimal

from num2words import num2words


def in_words(amount_paise: int) -> str:
    """`Rupees one thousand one hundred and eighty only`; lakh and crore, paise only where there are any."""
    rupees, paise = divmod(amount_paise, 100)
    words = f"Rupees {_words(rupees)}"
    if paise:
        words += f" and paise {_words(paise)}"
    return f"{words} only"


def _words(number: int) -> str:
    # The currency form of num2words reads an int as paise; the cardinal form has no such trap. Decimal keeps the
    # library away from floats, and its commas and hyphens are dropped: they are not how amounts are read out.
    return str(num2words(Decimal(number), lang="en_IN")).replace(",", "").replace("-", " ")
