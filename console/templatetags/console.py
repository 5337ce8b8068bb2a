"""Template tags of the console: times in the reader's zone, with the zone's name."""

import re
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django import template
from django.forms import BoundField, Form
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import escape, format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from console.error_codes import Meaning
from console.first_steps import Progress
from console.form_ids import FORM_ID
from console.lists import AFTER, BEFORE
from console.page import FOR_ENVIRONMENT
from gateway import ids
from gateway.clock import now
from tenants import labels
from tenants.labels import NOTHING
from webhooks.stream import LONGEST_COMMIT

register = template.Library()

_ROUNDED_UP = timedelta(seconds=59)
"""Added to a future time's distance. So a time 24 hours away is still shown as "in 1 day" a few seconds later."""
_UNITS = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))


@register.simple_tag(takes_context=True)
def moment(
    context: dict[str, Any], at: datetime | str | None, relative: bool = False, seconds: bool = False
) -> SafeString | str:
    """A `<time>` in the visit's zone, with the zone's name. With `relative`, it also shows the distance from now. None
    becomes a dash.

    `at` may be a text in ISO 8601.
    """
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if at is None:
        return NOTHING
    visit = context["console"]
    shown = at.astimezone(visit.zone)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} {}{}</time>',
        f"{at:%Y-%m-%dT%H:%M:%SZ}",
        f"{at:%Y-%m-%d %H:%M:%S}",
        f"{shown.day} {shown:%b %Y, %H:%M:%S}" if seconds else f"{shown.day} {shown:%b %Y, %H:%M}",
        shown.tzname(),
        f" ({away(at)})" if relative else "",
    )


@register.simple_tag(takes_context=True)
def environment_field(context: dict[str, Any]) -> SafeString:
    """The hidden form field with the environment that the page shows (`console/page.py`)."""
    return format_html(
        '<input type="hidden" name="{}" value="{}">', FOR_ENVIRONMENT, context["console"].environment
    )


@register.simple_tag
def form_id_field() -> SafeString:
    """The hidden form field with a new id for a form that is submitted once (`console/form_ids.py`)."""
    return format_html('<input type="hidden" name="{}" value="{}">', FORM_ID, uuid4())


@register.simple_tag(takes_context=True)
def live(context: dict[str, Any], url_name: str, **query: str) -> SafeString:
    """The attribute of a part of a page that refreshes when there are new events. `url_name` reports them
    (`console/events.py`). Events that were committed while the page was made count as new.
    """
    first = ids.first_at(context["request"].opened_at - LONGEST_COMMIT)
    return format_html('data-live="{}?{}"', reverse(url_name), urlencode({**query, AFTER: str(first)}))


@register.simple_tag
def error_code(meanings: Mapping[str, Meaning], code: object, page: str) -> SafeString:
    """An error code. A known code is a link to `page`. With scripts enabled, the link opens the code's
    drawer instead.
    """
    known = meanings.get(str(code))
    if known is None:
        return format_html("<code>{}</code>", code)
    return format_html(
        '<a href="{}" data-opens="#{}" aria-haspopup="dialog"><code>{}</code></a>',
        page,
        known.element_id,
        code,
    )


@register.simple_tag
def filter_chips(request: HttpRequest, form: Form) -> list[dict[str, str]]:
    """The filled fields of a list's filter. Each has its label, its value in words, and the list's URL without this
    field.
    """
    found = []
    for field in form.visible_fields():
        value = request.GET.get(field.name, "")
        if value and not field.errors:
            rest = request.GET.copy()
            for name in (field.name, BEFORE):
                rest.pop(name, None)
            choices = {str(key): str(word) for key, word in getattr(field.field, "choices", ())}
            url = f"{request.path}?{rest.urlencode()}" if rest else request.path
            found.append({"label": str(field.label), "value": choices.get(value, value), "url": url})
    return found


@register.filter
def milliseconds(duration: float | None) -> str:
    """A duration with its unit. None becomes a dash."""
    return NOTHING if duration is None else labels.milliseconds(duration)


@register.filter
def phone_number(name: str | None) -> str:
    """The name of a customer or a number. A phone number in bare digits gets a "+". Empty for None."""
    return labels.phone_number(name or "")


def away(at: datetime) -> str:
    """The distance of a time from now, e.g. `in 5 minutes`, `2 days ago`, `now`."""
    distance = at - now()
    if distance > timedelta():
        distance += _ROUNDED_UP
    for unit, word in _UNITS:
        count = abs(distance) // unit
        if count:
            text = f"{count} {word}{'' if count == 1 else 's'}"
            return f"in {text}" if distance > timedelta() else f"{text} ago"
    return "now"


@register.filter
def shell_quoted(text: str) -> str:
    """A text as one argument of a command."""
    return shlex.quote(text)


@register.filter
def shown_value(field: BoundField) -> SafeString:
    """The hidden input of a field's shown value (`ChangeForm`), for a page that renders the field choice by choice."""
    return field.as_hidden(only_initial=True) if field.field.show_hidden_initial else mark_safe("")


@register.filter
def time_left(until: datetime | None) -> str:
    """The time left until a moment, e.g. `5 h`, `12 min`. Empty for None and for a moment in the past."""
    left = (until - now()) // timedelta(minutes=1) if until else -1
    if left < 0:
        return ""
    return f"{left // 60} h" if left >= 60 else f"{max(left, 1)} min"


@register.simple_tag(takes_context=True)
def brief_moment(context: dict[str, Any], at: datetime) -> SafeString:
    """The time of day for a moment of today, or else the date, in the visit's zone."""
    zone = context["console"].zone
    shown = at.astimezone(zone)
    if shown.date() == now().astimezone(zone).date():
        return clock(context, at)
    return format_html('<time datetime="{}">{}</time>', f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{shown.day} {shown:%b}")


@register.simple_tag(takes_context=True)
def clock(context: dict[str, Any], at: datetime, seconds: bool = False) -> SafeString:
    """The time of day in the visit's zone, for pages that show the date elsewhere."""
    shown = at.astimezone(context["console"].zone)
    text = f"{shown:%H:%M:%S}" if seconds else f"{shown:%H:%M}"
    return format_html('<time datetime="{}">{}</time>', f"{at:%Y-%m-%dT%H:%M:%SZ}", text)


_CODE = re.compile(r"```([^`]+)```|`([^`\n]+)`")
_STYLES = [
    (re.compile(rf"(?<!\w){mark}(?!\s)([^{mark}\n]+)(?<!\s){mark}(?!\w)"), tag)
    for mark, tag in ((r"\*", "strong"), ("_", "em"), ("~", "s"))
]


@register.filter
def as_whatsapp(text: str) -> SafeString:
    """A message's text with WhatsApp's formatting: `*bold*`, `_italic_`, `~struck~` and code between backticks."""
    drawn, end = [], 0
    for found in _CODE.finditer(text):
        drawn += [_styled(text[end : found.start()]), f"<code>{escape(found[1] or found[2])}</code>"]
        end = found.end()
    # The result is safe, because every part of the text was escaped.
    return mark_safe("".join([*drawn, _styled(text[end:])]))  # noqa: S308


def _styled(text: str) -> str:
    styled = str(escape(text))
    for pattern, tag in _STYLES:
        styled = pattern.sub(partial(_drawn, tag), styled)
    return styled


def _drawn(tag: str, found: re.Match[str]) -> str:
    return f"<{tag}>{found[1]}</{tag}>" if _is_nested(found[1]) else found[0]


def _is_nested(part: str) -> bool:
    """Whether every tag that begins in a part also ends in the part. In `*a _b* c_` the tags cross."""
    depth = 0
    for sign in re.findall("</?", part):
        depth += 1 if sign == "<" else -1
        if depth < 0:
            return False
    return depth == 0


@register.filter
def all_done(steps: list[Progress]) -> bool:
    """Whether every first step is done."""
    return all(each.is_done for each in steps)
