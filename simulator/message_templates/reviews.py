"""Meta's review of templates and its later decisions about them, each with its notification (upstream fact 3.8).

A submitted template waits for `templates.review_ms`. A template with `reject` in its name is rejected, any other is
approved. The control API can change the decision at any time.
"""

import asyncio
import time
from typing import Any

from simulator.notifier import Notifier
from simulator.settings import Templates
from simulator.world.records import Template
from simulator.world.state import State

STATUS_OF = {
    "APPROVED": "APPROVED",
    "REJECTED": "REJECTED",
    "PENDING": "PENDING",
    "PAUSED": "PAUSED",
    "DISABLED": "DISABLED",
    "FLAGGED": "APPROVED",
    "IN_APPEAL": "IN_APPEAL",
    "REINSTATED": "APPROVED",
    "PENDING_DELETION": "PENDING_DELETION",
    "DELETED": "DELETED",
    "LOCKED": "LOCKED",
    "UNLOCKED": "APPROVED",
    "ARCHIVED": "ARCHIVED",
    "UNARCHIVED": "APPROVED",
    "LIMIT_EXCEEDED": "LIMIT_EXCEEDED",
}
QUALITIES = ("UNKNOWN", "GREEN", "YELLOW", "RED")


class Reviews:
    """Reviews templates and changes their status, quality and category."""

    def __init__(self, settings: Templates, state: State, notifier: Notifier) -> None:
        self._settings = settings
        self._state = state
        self._notifier = notifier
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def clear(self) -> None:
        """Drop all pending reviews."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def resume(self) -> None:
        """After a restart, schedule the reviews of pending templates again."""
        for template in self._state.templates.values():
            if template.status == "PENDING":
                self.submit(template)

    def submit(self, template: Template) -> None:
        """Review a template after the delay."""
        template.status = "PENDING"
        loop = asyncio.get_running_loop()
        waiting = self._timers.pop(template.id, None)
        if waiting:
            waiting.cancel()
        self._timers[template.id] = loop.call_later(self._settings.review_ms / 1000, self._review, template)

    def _review(self, template: Template) -> None:
        self._timers.pop(template.id, None)
        if self._state.templates.get(template.id) is not template or template.status != "PENDING":
            return
        if "reject" in template.name:
            self.decide(template, "REJECTED", reason="INVALID_FORMAT")
        else:
            self.decide(template, "APPROVED")

    def decide(self, template: Template, event: str, *, reason: str = "NONE", **more: Any) -> None:
        """Apply an event of `message_template_status_update`. Raises `ValueError` for an unknown event."""
        if event not in STATUS_OF:
            raise ValueError(f"event is one of {', '.join(STATUS_OF)}")
        template.status = STATUS_OF[event]
        template.rejected_reason = reason if event == "REJECTED" else "NONE"
        value: dict[str, Any] = {
            "event": event,
            "message_template_id": int(template.id),
            "message_template_name": template.name,
            "message_template_language": template.language,
            "reason": reason,
            "message_template_category": template.category,
        }
        if event == "REJECTED":
            value["rejection_info"] = {
                "reason": "Variables next to each other",
                "recommendation": "Put words between them",
            }
        if event in {"PAUSED", "DISABLED"}:
            value["other_info"] = {
                "title": "FIRST_PAUSE" if event == "PAUSED" else "DISABLED",
                "description": "Template quality is low",
            }
        value.update(more)
        self._publish(template, "message_template_status_update", value)
        if event == "DELETED":
            self._state.drop_template(template)

    def set_quality(self, template: Template, score: str) -> None:
        """Set a new quality score. Raises `ValueError`."""
        if score not in QUALITIES:
            raise ValueError(f"quality is one of {', '.join(QUALITIES)}")
        before, template.quality = template.quality, score
        self._publish(
            template,
            "message_template_quality_update",
            {"previous_quality_score": before, "new_quality_score": score, **_named(template)},
        )

    def set_category(self, template: Template, category: str) -> None:
        """Move the template to another category, as Meta does."""
        before, template.category = template.category, category
        template.previous_category = before
        self._publish(
            template,
            "template_category_update",
            {**_named(template), "previous_category": before, "new_category": category},
        )

    def warn_of_category(self, template: Template, category: str) -> None:
        """Send the notice that Meta sends a day before it changes a category. In this notice, `new_category` is the
        current category (upstream fact 3.8).
        """
        self._publish(
            template,
            "template_category_update",
            {
                **_named(template),
                "new_category": template.category,
                "correct_category": category,
                "category_update_timestamp": int(time.time()) + 86400,
            },
        )

    def _publish(self, template: Template, field: str, value: dict[str, Any]) -> None:
        self._state.changed()
        account = self._state.accounts.get(template.waba_id)
        if account is not None and account.subscribed:
            self._notifier.publish(waba_id=template.waba_id, field=field, value=value)


def _named(template: Template) -> dict[str, Any]:
    return {
        "message_template_id": int(template.id),
        "message_template_name": template.name,
        "message_template_language": template.language,
    }
