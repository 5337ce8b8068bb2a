"""Permissions: the roles of members (specification 5.8), and the scopes of API keys.

A role opens areas for the console's pages (`console/urls.py`) and for console tokens. A scope opens operations for a
key. Each operation names its scope beside its view, and each scope belongs to one area. So
`gateway.api.authentication.check_scope` can check both a role and a scope.
"""

from collections.abc import Iterable
from enum import StrEnum

from django.db.models import TextChoices


class Role(TextChoices):
    """The role of a member of a tenant."""

    OWNER = "owner", "Owner"
    DEVELOPER = "developer", "Developer"
    AGENT = "agent", "Agent"
    BILLING = "billing", "Billing"
    READ_ONLY = "read_only", "Read only"


class Area(StrEnum):
    """A part of the account that roles open or close."""

    OWN = "own"
    """The parts that each member has: the home page, environment and time zone."""
    INTEGRATION = "integration"
    """Numbers, messages, templates, webhooks, events, logs and API keys."""
    CONVERSATIONS = "conversations"
    """Messages of customers, and replies to them."""
    BILLING = "billing"
    SETTINGS = "settings"
    """Settings, members, the audit log and the application."""


class KeyScope(StrEnum):
    """A part of the API that an API key can open, for reads and changes alike."""

    MESSAGES = "messages"
    """Sending, read marks, media, batches and the message log."""
    NUMBERS = "numbers"
    """Numbers, business accounts and connect sessions."""
    TEMPLATES = "templates"
    """Message templates and flows."""
    WEBHOOKS = "webhooks"
    """Endpoints and deliveries."""
    EVENTS = "events"
    """Events, the event stream, analytics, the ledger, the request log and exports of all data."""
    BILLING = "billing"
    SETTINGS = "settings"
    """The tenant's name, billing e-mail and retention, and erasures of customers' data."""
    KEYS = "keys"
    """API keys."""

    @property
    def area(self) -> Area:
        """The area that a member's role must open for this scope."""
        return _AREAS.get(self, Area.INTEGRATION)


ALL_SCOPES = frozenset(KeyScope)
LIVE_SCOPES = frozenset({KeyScope.BILLING, KeyScope.SETTINGS})
"""Scopes of operations on data that both environments share. A test key cannot use them, unless its tenant is a
sandbox.
"""
NUMBER_SCOPES = frozenset({KeyScope.MESSAGES, KeyScope.NUMBERS, KeyScope.EVENTS})
"""Scopes of operations on data of one number. A key that is limited to numbers can have only these scopes."""
_AREAS = {KeyScope.BILLING: Area.BILLING, KeyScope.SETTINGS: Area.SETTINGS}

_CHANGES: dict[Role, set[Area]] = {
    Role.OWNER: set(Area),
    Role.DEVELOPER: {Area.OWN, Area.INTEGRATION, Area.CONVERSATIONS},
    Role.AGENT: {Area.OWN, Area.CONVERSATIONS},
    Role.BILLING: {Area.OWN, Area.BILLING},
    Role.READ_ONLY: {Area.OWN},
}
_READS: dict[Role, set[Area]] = {
    Role.OWNER: set(Area),
    Role.DEVELOPER: {Area.OWN, Area.INTEGRATION, Area.CONVERSATIONS, Area.SETTINGS},
    Role.AGENT: {Area.OWN, Area.CONVERSATIONS},
    Role.BILLING: {Area.OWN, Area.BILLING, Area.SETTINGS},
    Role.READ_ONLY: set(Area),
}
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


def may_read(role: str, area: Area) -> bool:
    """Whether a role opens an area. An unknown role opens nothing."""
    return role in _READS and area in _READS[Role(role)]


def may_change(role: str, area: Area) -> bool:
    """Whether a role may change an area. An unknown role changes nothing."""
    return role in _CHANGES and area in _CHANGES[Role(role)]


def allows(role: str, area: Area, method: str) -> bool:
    """Whether a role allows an HTTP method in an area. Safe methods read, and all others change."""
    return may_read(role, area) if method in _SAFE_METHODS else may_change(role, area)


def scopes_of_role(role: str) -> frozenset[KeyScope]:
    """The scopes that a member may give to a key: those of the areas that the role may change."""
    return frozenset(scope for scope in KeyScope if may_change(role, scope.area))


def known_scopes(names: Iterable[str]) -> frozenset[KeyScope]:
    """The scopes with these stored names. An unknown name, stored by a later version, opens nothing here."""
    return frozenset(KeyScope(name) for name in names if name in ALL_SCOPES)
