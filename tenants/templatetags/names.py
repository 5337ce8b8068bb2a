"""Template filter of mails: names that strangers typed are quoted and cut."""

from django import template

from tenants import names

register = template.Library()
register.filter("quoted", names.quoted)
