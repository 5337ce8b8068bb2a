"""The audit log in words: the labels of actions, and the details of entries."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

from django.utils.formats import date_format

from tenants.labels import NOTHING, label, readable, words

ACTIONS = {
    "account.connect": "Account connected",
    "account.move": "Account moved to another business",
    "account.release": "Account released",
    "api_key.create": "API key created",
    "api_key.revoke": "API key revoked",
    "api_key.rotate": "API key rotated",
    "app.create": "Platform app created",
    "billing.ask": "Second person requested",
    "billing.approve": "Approved as the second person",
    "billing.close": "Month closed",
    "billing.decline": "Declined as the second person",
    "billing.credit": "Credit note issued",
    "billing.einvoice": "E-invoice registered",
    "billing.payment": "Bank transfer recorded",
    "billing.profile": "Billing profile changed",
    "billing.refund": "Payment paid back",
    "billing.replace": "Invoice replaced",
    "billing.sent_again": "Invoice mailed again",
    "billing.tds": "Tax deducted at source recorded",
    "billing.terms": "Billing terms set",
    "billing.write_off": "Invoice written off",
    "connected_app.connect": "App connected",
    "connected_app.disconnect": "App disconnected",
    "customer.erase": "Customer's data erased",
    "data.export": "Data export requested",
    "email_domain.delete": "Email domain rule deleted",
    "email_domain.rule": "Email domain rule set",
    "flow_endpoint.delete": "Flow endpoint deleted",
    "flow_endpoint.rotate_key": "Key pair of a Flow endpoint made and uploaded",
    "flow_endpoint.rotate_secret": "Secret of a Flow endpoint rotated",
    "flow_endpoint.set": "Flow endpoint set",
    "number.deregister": "Number deregistered",
    "number.migrate": "Migration of a number begun",
    "number.move": "Number moved to another business",
    "number.register": "Number registered",
    "number.release": "Number released",
    "number.two_step": "Two-step PIN set",
    "team.invite": "Person invited",
    "team.join": "Invitation accepted",
    "team.remove": "Person removed",
    "team.role": "Role changed",
    "team.withdraw": "Invitation withdrawn",
    "support.view": "Console opened by our team, read only",
    "support.view_end": "Console closed by our team",
    "tenant.apply_again": "Applied again",
    "tenant.approve": "Business approved",
    "tenant.close": "Business closed",
    "tenant.create": "Business created by a platform",
    "tenant.expunge": "Stored events deleted",
    "tenant.reinstate": "Business reinstated",
    "tenant.reject": "Business rejected",
    "tenant.sign_up": "Signed up",
    "tenant.suspend": "Business suspended",
    "tenant.update": "Settings changed",
    "user.change": "Person changed",
    "user.create": "Person created",
    "user.second_factor_lost": "Lost second factor removed",
    "webhook_delivery.replay": "Delivery sent again",
    "webhook_endpoint.create": "Endpoint created",
    "webhook_endpoint.delete": "Endpoint deleted",
    "webhook_endpoint.disable": "Endpoint disabled",
    "webhook_endpoint.recover": "Deliveries of a time range sent again",
    "webhook_endpoint.resume": "Endpoint resumed",
    "webhook_endpoint.rotate_secret": "Endpoint secret rotated",
    "webhook_endpoint.update": "Endpoint changed",
    "webhook_endpoint.verify": "Endpoint verified",
}
"""The label of each action. docs/staff.md has the same list."""

_CHANGED = ("before", "after")
_NAMING = ("email", "role", "name", "prefix", "environment", "scopes", "only_reads", "redirect_uri", "kind")
"""The details that say whom or what an action concerned. The business may read them, unlike a note of staff."""
_ACTOR = "acting_key"
"""The detail that names the acting key. It is not shown among an entry's details."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")

Unit = Callable[[Any], str]
_units: dict[str, Unit] = {}


def register_unit(suffix: str, shown: Unit) -> None:
    """Show numbers whose name ends with `_suffix` in a readable unit, such as paise as rupees."""
    _units[f"_{suffix}"] = shown


def action_words(action: str) -> str:
    """The label of an action. If an action has no label, the label is the action's code in words."""
    return ACTIONS.get(action) or label(action.replace(".", " "))


def changes(details: dict[str, Any], zone: tzinfo = UTC) -> list[str]:
    """Whom or what an action concerned, and the values that it changed, before and after, one line each. The tenant
    may read these lines.

    Times are shown in `zone`, with its name.
    """
    named = [
        f"{_name(name)}: {_value(name, details[name], zone)}" for name in _NAMING if _is_given(details, name)
    ]
    before, after = (details.get(name) for name in _CHANGED)
    if not isinstance(before, dict) or not isinstance(after, dict):
        return named
    return named + [
        f"{_name(key)}: {_value(key, before.get(key), zone)} → {_value(key, value, zone)}"
        for key, value in after.items()
        if value != before.get(key)
    ]


def _is_given(details: dict[str, Any], name: str) -> bool:
    return details.get(name) not in (None, "", [])


def said(details: dict[str, Any]) -> list[str]:
    """All details of an entry: first the changes, then other details such as a note. For staff only."""
    others = {
        name: value
        for name, value in details.items()
        if name not in {*_CHANGED, *_NAMING, _ACTOR} and _is_given(details, name)
    }
    return changes(details) + [f"{_name(name)}: {_value(name, value)}" for name, value in others.items()]


def _name(name: str) -> str:
    return label(next((name.removesuffix(suffix) for suffix in _units if name.endswith(suffix)), name))


def _value(name: str, value: Any, zone: tzinfo = UTC) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(name, part, zone) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{words(key)} {_value(key, part, zone)}" for key, part in value.items())
    for suffix, shown in _units.items():
        if name.endswith(suffix):
            return shown(value)
    text = str(value)
    if _MOMENT.match(text):
        return date_format(datetime.fromisoformat(text).astimezone(zone), "j M Y, H:i T")
    return readable(text)
