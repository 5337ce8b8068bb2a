"""Template filter of mails. It quotes and shortens names that users typed."""

from django import template

from tenants import names

register = template.Library()
register.filter("quoted", names.quoted)
