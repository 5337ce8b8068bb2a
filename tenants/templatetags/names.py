"""Template filter of mails that quotes and cuts names which users typed."""

from django import template

from tenants import names

register = template.Library()
register.filter("quoted", names.quoted)
