"""The cards of business tokens on the staff admin's first page."""

from typing import Any

from django.urls import reverse

from tenants.staff.dashboard import Card, register_cards


@register_cards
def _cards(report: dict[str, Any]) -> list[Card]:
    tokens = report["tokens"]
    accounts = reverse("admin:numbers_businessaccount_changelist")
    return [
        Card("Tokens expiring", tokens["expiring"], "within 7 days", accounts, True),
        Card("Tokens invalid", tokens["invalid"], "must be connected again", accounts, True),
    ]
