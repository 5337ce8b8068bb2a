"""Countries by name: the codes of ISO 3166-1 with the English names of Unicode's CLDR, which Babel brings."""

from unicodedata import normalize

from babel import Locale

_BESIDE_ISO = frozenset(
    ["AC", "CP", "CQ", "DG", "EA", "EU", "EZ", "IC", "QO", "TA", "UN", "XA", "XB", "XK", "ZZ"]
)
"""Codes of two letters that CLDR has for unions, parts of countries and tests; ISO assigns none of them."""

NAMES: dict[str, str] = dict(
    sorted(
        (
            (code, name)
            for code, name in Locale("en").territories.items()
            if len(code) == 2 and code.isalpha() and code not in _BESIDE_ISO
        ),
        key=lambda country: normalize("NFKD", country[1]),
    )
)
"""Code → name, e.g. `IN` → `India`, in the order of the names; Åland is among those with A."""


def name_of(code: str) -> str:
    """A country's name; a code that ISO does not know stays as it is."""
    return NAMES.get(code, code)
