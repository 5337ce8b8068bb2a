"""Roles of a business's people: which areas of the account each may read, and which it may change (specification 5.8).

Asked by the console's pages (`tenants.console.frame.console_page`) and by the API for console tokens
(`gateway.api.authentication.check_tenant_caller`). API keys act for the business itself and have no role.
"""

from enum import StrEnum

from django.db.models import TextChoices


class Role(TextChoices):
    """What a person is in a business."""

    OWNER = "owner", "Owner"
    DEVELOPER = "developer", "Developer"
    BILLING = "billing", "Billing"
    READ_ONLY = "read_only", "Read only"


class Area(StrEnum):
    """A part of the account that roles open or close."""

    OWN = "own"
    """What each person has: the home page, environment and time zone."""
    INTEGRATION = "integration"
    """Numbers, messages, templates, webhooks, events, logs and API keys."""
    BILLING = "billing"
    SETTINGS = "settings"
    """Settings, people, the audit log and the application."""


_CHANGES: dict[Role, set[Area]] = {
    Role.OWNER: set(Area),
    Role.DEVELOPER: {Area.OWN, Area.INTEGRATION},
    Role.BILLING: {Area.OWN, Area.BILLING},
    Role.READ_ONLY: {Area.OWN},
}
_READS: dict[Role, set[Area]] = {
    Role.OWNER: set(Area),
    Role.DEVELOPER: {Area.OWN, Area.INTEGRATION, Area.SETTINGS},
    Role.BILLING: {Area.OWN, Area.BILLING, Area.SETTINGS},
    Role.READ_ONLY: set(Area),
}
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


def may_read(role: str, area: Area) -> bool:
    """Whether a role opens an area; a role that is not known opens nothing."""
    return role in _READS and area in _READS[Role(role)]


def may_change(role: str, area: Area) -> bool:
    """Whether a role changes an area; a role that is not known changes nothing."""
    return role in _CHANGES and area in _CHANGES[Role(role)]


def allows(role: str, area: Area, method: str) -> bool:
    """Whether a role may call an HTTP method in an area: safe methods read, every other one changes."""
    return may_read(role, area) if method in _SAFE_METHODS else may_change(role, area)
