"""Template notifications: what `message_template_*` and `template_*` change in the mirror (upstream fact 3.8).

Called by the incoming flow inside its transaction. What an event says is stored at once, and the account's templates
are read again soon after: an event can come late, out of order, or about a template that was made elsewhere.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Q

from gateway.upstream.notifications.lossless_json import text
from messaging.message_templates import mirror
from messaging.message_templates.models import MessageTemplate
from phone_numbers.models import BusinessAccount

STATUSES: Mapping[str, str] = {
    **{
        same: same
        for same in (
            "APPROVED",
            "REJECTED",
            "PENDING",
            "PAUSED",
            "DISABLED",
            "IN_APPEAL",
            "PENDING_DELETION",
            "LOCKED",
            "ARCHIVED",
            "LIMIT_EXCEEDED",
        )
    },
    "REINSTATED": "APPROVED",
    "UNLOCKED": "APPROVED",
    "UNARCHIVED": "APPROVED",
}
"""The `event` of a status update → the template's status from then on. Others are left to the next read."""


def apply(*, field: str, value: Mapping[str, Any], waba_id: str) -> None:
    """Apply one change of a notification to the template it names. Inside the caller's transaction."""
    account = BusinessAccount.objects.filter(waba_id=waba_id).first()
    if account is None:
        return
    template_id = _template_id(account, value)
    if template_id is None:
        mirror.reread_soon(account)
    elif field == _STATUS and value.get("event") == "DELETED":
        mirror.delete(account, template_id=template_id)
    else:
        mirror.change(account, template_id, HANDLERS[field](value))


def _template_id(account: BusinessAccount, value: Mapping[str, Any]) -> str | None:
    """The template that an event names by id, or else by its name and language."""
    template_id = text(value.get("message_template_id"))
    named = (
        Q(template_id=template_id)
        if template_id
        else Q(
            name=text(value.get("message_template_name")) or "",
            language=mirror.language_of(value.get("message_template_language")),
        )
    )
    return (
        MessageTemplate.objects.filter(named, account=account).values_list("template_id", flat=True).first()
    )


def _status(value: Mapping[str, Any]) -> dict[str, Any]:
    status = STATUSES.get(text(value.get("event")) or "")
    if status is None:
        return {}
    reason = (text(value.get("reason")) or "NONE") if status == "REJECTED" else "NONE"
    category = text(value.get("message_template_category"))
    return {"status": status, "rejected_reason": reason, **({"category": category} if category else {})}


def _quality(value: Mapping[str, Any]) -> dict[str, Any]:
    score = text(value.get("new_quality_score"))
    return {"quality_score": {"score": score}} if score else {}


def _category(value: Mapping[str, Any]) -> dict[str, Any]:
    """The notice of a move (`correct_category`; `new_category` is the present one), or the move itself."""
    said = {
        "category": text(value.get("new_category")) or text(value.get("category")),
        "previous_category": text(value.get("previous_category")),
        "correct_category": text(value.get("correct_category")),
    }
    return {name: category for name, category in said.items() if category}


def _read_only(value: Mapping[str, Any]) -> dict[str, Any]:
    """The event holds the new text in a form of its own; the read brings the components."""
    return {}


_STATUS = "message_template_status_update"
HANDLERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    _STATUS: _status,
    "message_template_quality_update": _quality,
    "message_template_components_update": _read_only,
    "template_category_update": _category,
    "template_correct_category_detection": _category,
}
"""Upstream field → the members of the template that it changes."""
