"""Template filters of mails: for names that users typed, and for moments."""

from datetime import datetime

from django import template
from django.utils import dateformat

from gateway.clock import IST
from tenants import names

register = template.Library()
register.filter("quoted", names.quoted)


@register.filter
def ist(moment: datetime | None) -> str:
    """A moment in Indian time, such as `1 December 2026, 00:15 IST`. Like Django's `date`, empty without a moment."""
    return "" if moment is None else f"{dateformat.format(moment.astimezone(IST), 'j F Y, H:i')} IST"
