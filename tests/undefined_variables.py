"""Makes a test fail in which one of our templates prints an undefined variable.

Django prints nothing for such a variable, so a renamed part of the context would leave a gap in a page or a mail. A
variable in a condition, or with the filter `default`, may be undefined. So may those of Unfold's parts that we replace.
"""

import sys

from django.conf import settings
from django.template import Engine
from django.template.base import FilterExpression

OURS = f"{settings.BASE_DIR / 'templates'}/"


def refuse() -> None:
    """Replace the text that Django prints for an undefined variable."""
    Engine.string_if_invalid = property(_text, lambda engine, text: None)  # type: ignore[assignment]


def _text(engine: Engine) -> str:
    asked = sys._getframe(1).f_locals
    expression, context = asked.get("self"), asked.get("context")
    if isinstance(expression, FilterExpression) and context is not None:
        template = context.render_context.template
        has_default = any(function.__name__.startswith("default") for function, _ in expression.filters)
        is_ours = template.origin.name.startswith(OURS) and not template.name.startswith("unfold/")
        if is_ours and not has_default:
            raise AssertionError(f"{template.name}: {expression.token} is undefined")
    return ""
