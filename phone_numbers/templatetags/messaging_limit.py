"""Template filter for Meta's messaging limit: the number of customers with whom a business may start a conversation in
a day.
"""

import re

from django import template

register = template.Library()

UNLIMITED = "TIER_UNLIMITED"
_TIER = re.compile(r"TIER_(\d+)(K?)")


@register.filter
def limit_in_words(tier: str | None) -> str:
    """The limit in words: `TIER_2K` is `2,000 customers a day`. An unknown value is returned unchanged. The text is
    empty for None.
    """
    if tier == UNLIMITED:
        return "No limit of customers a day"
    found = _TIER.fullmatch(tier or "")
    if found is None:
        return tier or ""
    return f"{int(found[1]) * (1000 if found[2] else 1):,} customers a day"
