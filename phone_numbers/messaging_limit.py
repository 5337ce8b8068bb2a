"""The upstream's messaging limit in words: how many customers a business may write to first in 24 hours."""

import re

UNLIMITED = "TIER_UNLIMITED"
_TIER = re.compile(r"TIER_(\d+)(K?)")


def limit_in_words(tier: str | None) -> str:
    """`TIER_2K` as `2,000 customers a day`; a tier of another form as it is, empty for none."""
    if tier == UNLIMITED:
        return "No limit of customers a day"
    found = _TIER.fullmatch(tier or "")
    if found is None:
        return tier or ""
    return f"{int(found[1]) * (1000 if found[2] else 1):,} customers a day"
