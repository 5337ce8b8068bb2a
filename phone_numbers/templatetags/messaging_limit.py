"""Template filter of the messaging limit."""

from django import template

from phone_numbers.serializers import limit_in_words

register = template.Library()
register.filter("limit_in_words", limit_in_words)
