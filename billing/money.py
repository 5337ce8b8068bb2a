"""Money as integer paise: rounding, shares and the Indian way of writing amounts. Pure."""


def rounded_share(amount_paise: int, numerator: int, denominator: int) -> int:
    """`amount × numerator ÷ denominator` in paise, half a paisa rounded up. Amounts are not negative."""
    return (2 * amount_paise * numerator + denominator) // (2 * denominator)


def rupees(amount_paise: int) -> str:
    """An amount for people: `₹12,34,567.50`, grouped by lakh and crore, always two decimals."""
    sign, amount_paise = ("-", -amount_paise) if amount_paise < 0 else ("", amount_paise)
    whole, paise = divmod(amount_paise, 100)
    digits = str(whole)
    groups = [digits[-3:]]
    rest = digits[:-3]
    while rest:
        groups.insert(0, rest[-2:])
        rest = rest[:-2]
    return f"{sign}₹{','.join(groups)}.{paise:02d}"
