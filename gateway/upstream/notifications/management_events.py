"""Fields of the upstream whose value is one event: templates, numbers, the account, and everything unknown.

Called through the table of `normalise`; each function says of one field what event its value becomes and by
which key a repetition is known. Keys hold the entry's sending time: a repetition with another time is let
through rather than a second change lost.
"""

from gateway.upstream.notifications.change import META_OTHER, Person, Source
from gateway.upstream.notifications.drafts import EventDraft
from gateway.upstream.notifications.lossless_json import JsonObject, digest, member, text


def template_status(source: Source) -> list[EventDraft]:
    """Review results, pauses, locks and deletions of a message template."""
    return source.whole(
        "template.status", *_template(source), "status", text(source.value.get("event")), source.time
    )


def template_quality(source: Source) -> list[EventDraft]:
    """A new quality score of a message template."""
    value = source.value
    scores = f"{_optional(value, 'previous_quality_score')}-{_optional(value, 'new_quality_score')}"
    return source.whole("template.quality", *_template(source), "quality", scores, source.time)


def template_category(source: Source) -> list[EventDraft]:
    """A template that was, or will be, moved to another category."""
    value = source.value
    # Direct Send names the present category `category`.
    present = _optional(value, "new_category") or _optional(value, "category")
    categories = f"{_optional(value, 'previous_category')}-{present}-{_optional(value, 'correct_category')}"
    time = text(value.get("category_update_timestamp")) or source.time
    return source.whole("template.category", *_template(source), "category", categories, time)


def template_components(source: Source) -> list[EventDraft]:
    """A template whose text, header or buttons were edited."""
    return source.whole(META_OTHER, *_template(source), "components", source.time)


def number_quality(source: Source) -> list[EventDraft]:
    """A number's new messaging limit or throughput, or a flag on it."""
    value = source.value
    limit = _optional(value, "current_limit") or _optional(value, "max_daily_conversations_per_business")
    return source.whole(
        "number.quality", *_number(source, "num"), "quality", text(value.get("event")), limit, source.time
    )


def number_name(source: Source) -> list[EventDraft]:
    """The decision on a number's display name."""
    decision = text(source.value.get("decision"))
    return source.whole("number.name", *_number(source, "num"), "name", decision, source.time)


def username(source: Source) -> list[EventDraft]:
    """A business username that was reserved, approved or deleted."""
    status, name = text(source.value.get("status")), _optional(source.value, "username")
    return source.whole(META_OTHER, *_number(source, "uname"), status, name, source.time)


def account_update(source: Source) -> list[EventDraft]:
    """Restriction, ban, partners, deletion, review or settings; `field` and `event` tell which."""
    account = source.route.waba_info_id or source.route.entry_id
    what = text(source.value.get("event")) or source.field
    return source.whole("account.update", "acct", account, what, source.time, digest(source.value)[:8])


def account_alerts(source: Source) -> list[EventDraft]:
    """Warnings about a business, an account or a number; older ones carry the `alert_*` members directly."""
    value = source.value
    alert = member(value, "alert_info") or value
    return source.whole(
        "account.alerts",
        "alert",
        text(value.get("entity_id")),
        text(alert.get("alert_type")),
        text(alert.get("alert_status")),
        source.time,
    )


def account_capability(source: Source) -> list[EventDraft]:
    """New limits of the business: daily conversations, count of numbers."""
    account = source.route.waba_info_id or source.route.entry_id
    return source.whole("account.capability", "cap", account, digest(source.value)[:8], source.time)


def security(source: Source) -> list[EventDraft]:
    """Changes of, and requests to reset, a number's two-step PIN."""
    return source.whole(
        "account.security", *_number(source, "sec"), text(source.value.get("event")), source.time
    )


def handover(source: Source) -> list[EventDraft]:
    """Control of a chat that passed between apps and Meta's own agent."""
    sender = member(source.value, "sender")
    person = Person(
        text(sender.get("phone_number")) or text(sender.get("wa_id")), text(sender.get("user_id"))
    )
    return source.whole(META_OTHER, *source.unnamed(source.value), person=person)


def other(source: Source) -> list[EventDraft]:
    """Whatever has no event type of its own, whole."""
    return source.whole(META_OTHER, *source.unnamed(source.value))


def _template(source: Source) -> tuple[str, str | None]:
    return "tpl", text(source.value.get("message_template_id"))


def _number(source: Source, prefix: str) -> tuple[str, str | None]:
    return prefix, source.route.display_phone_number


def _optional(value: JsonObject, name: str) -> str:
    return text(value.get(name)) or ""
