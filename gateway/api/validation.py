"""Request bodies and queries through their In serializers: the values, or a 400 that says what each field may be."""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from django.http import QueryDict
from rest_framework import fields
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.serializers import BaseSerializer

from gateway.api.nearest import did_you_mean

SHOWN_PROBLEMS = 20
"""Of the items of a list: it can have thousands of wrong ones, and each has a sentence of its own."""
_INVALID_CHOICE = re.compile(r'"(.*)" is not a valid choice\.', re.DOTALL)


def checked(serializer: BaseSerializer[Any]) -> dict[str, Any]:
    """The validated values. Raises ValidationError, which becomes 400 `invalid_request`.

    In JSON a member has the type that the contract says. Queries and forms hold nothing but texts.
    """
    given = serializer.initial_data
    mistyped = {} if isinstance(given, QueryDict) else _mistyped(serializer, given)
    if not serializer.is_valid() or mistyped:
        raise ValidationError({**_with_choices(serializer, serializer.errors), **mistyped})
    values: dict[str, Any] = serializer.validated_data
    return values


def _mistyped(serializer: Any, given: Mapping[str, Any]) -> dict[str, list[str]]:
    """The members of another JSON type than their field, which REST framework would convert."""
    problems = {name: _mistype(field, given.get(name)) for name, field in serializer.fields.items()}
    return {name: [problem] for name, problem in problems.items() if problem}


def _mistype(field: Any, value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match field:
        case fields.CharField() if number:
            return "Must be a text: put it in quotes."
        case fields.IntegerField() if isinstance(value, str):
            return "Must be a whole number, without quotes."
        case fields.ListField() if value is not None and not isinstance(value, list):
            return "Must be a list, in square brackets."
        case fields.BooleanField() if number or isinstance(value, str):
            return "Must be true or false, without quotes."
        case fields.ChoiceField() if value is not None and str(value) in map(str, field.choices):
            if value not in field.choices:
                return f"Must be {'a text: put it in' if number else 'a number, without'} quotes."
    return None


def _with_choices(field: Any, errors: Any) -> Any:
    """The errors of a field, of a list the first; a wrong choice gets a sentence with the choices and the nearest."""
    if isinstance(errors, dict):
        children = getattr(field, "fields", {})
        item = getattr(field, "child", None)
        shown = errors.items() if children else islice(errors.items(), SHOWN_PROBLEMS)
        return {name: _with_choices(children.get(name, item), found) for name, found in shown}
    if isinstance(errors, list):
        return [_with_choices(field, found) for found in errors]
    wrong = _INVALID_CHOICE.fullmatch(errors) if isinstance(errors, ErrorDetail) else None
    if wrong is None or not hasattr(field, "choices"):
        return errors
    choices = [str(choice) for choice in field.choices]
    return (
        f'"{wrong[1][:100]}" is not a valid choice.{did_you_mean(wrong[1], choices)} '
        f"Must be one of: {', '.join(choices)}."
    )
