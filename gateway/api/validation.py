"""Validation of request bodies and queries by their In serializers: the values, or a 400 with the fields' problems.

A mistyped name gets a suggestion, the closest known word, so that callers can fix it without the documentation.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from typing import Any

from django.http import QueryDict
from rest_framework import fields
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.serializers import BaseSerializer, Serializer

SHORTEST_LIKENESS = 0.6
LONGEST_COMPARED = 100
"""Longer texts are not typing mistakes, and comparing them would be slow."""


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to `word`, or None.

    In a name with several parts, such as `message.status`, a known first part is not compared, because many names share
    it.
    """
    if len(word) > LONGEST_COMPARED:
        return None
    group, dot, _ = word.lower().rpartition(".")
    words = list(known)
    shared = group + dot
    peers = [name.removeprefix(shared) for name in words if dot and name.startswith(shared)]
    if peers:
        found = get_close_matches(word.lower().removeprefix(shared), peers, n=1, cutoff=SHORTEST_LIKENESS)
        return shared + found[0] if found else None
    found = get_close_matches(word.lower(), words, n=1, cutoff=SHORTEST_LIKENESS)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with the closest known word, else with the words of its group (`message.…`). Otherwise empty."""
    names = list(known)
    if found := suggestion(word, names):
        return f" Did you mean {found}?"
    group = word.lower().rpartition(".")[0] + "."
    peers = [name for name in names if len(group) > 1 and name.startswith(group)]
    return f" Did you mean one of {', '.join(peers)}?" if peers else ""


SHOWN_PROBLEMS = 20
"""Maximum number of wrong items of a list that a response names. A list can have thousands of them, each with its own
sentence.
"""
LONGEST_NAME = 100
"""Maximum number of characters that a response repeats of an unknown member's name."""
_INVALID_CHOICE = re.compile(r'"(.*)" is not a valid choice\.', re.DOTALL)


NO_MOMENT = "Must be an ISO 8601 date-time, such as 2026-12-01T09:00:00Z."


def has_time(text: str) -> bool:
    """Whether a written date-time has a time. A date without a time names no moment, although parsers accept it."""
    return ":" in text


class MomentField(fields.DateTimeField):
    """A date-time of a caller. A date without a time is rejected."""

    def to_internal_value(self, value: Any) -> datetime:
        if isinstance(value, str) and not has_time(value):
            raise ValidationError(NO_MOMENT)
        return super().to_internal_value(value)


def checked(serializer: BaseSerializer[Any], *, is_open: bool = False) -> dict[str, Any]:
    """The validated values. Raises ValidationError, which becomes 400 `invalid_request`.

    A JSON member must have the type in the contract, and an unknown member is rejected: a caller who writes `events`
    for `event_types` would subscribe to everything. `is_open` is for a body in Meta's form. Queries and forms have only
    texts, and `viewsets.py` has already validated a query's names.
    """
    given = serializer.initial_data
    problems: dict[str, list[str]] = {}
    if not isinstance(given, QueryDict):
        problems = _mistyped(serializer, given) | ({} if is_open else _unknown(serializer, given))
    if not serializer.is_valid() or problems:
        raise ValidationError({**_with_choices(serializer, serializer.errors), **problems})
    values: dict[str, Any] = serializer.validated_data
    return values


def unknown_member(name: str, known: Iterable[str]) -> str:
    """The error for an unknown member of a body, with the likely name and all known names."""
    names = sorted(known)
    return f"This member is unknown.{did_you_mean(name, names)} The known ones are: {', '.join(names)}."


def unknown_members(given: Iterable[str], known: Collection[str], place: str = "") -> dict[str, list[str]]:
    """The errors for the unknown members of the object at `place`, by member."""
    strange = islice((name for name in given if name not in known), SHOWN_PROBLEMS)
    return {f"{place}{name[:LONGEST_NAME]}": [unknown_member(name, known)] for name in strange}


def _unknown(serializer: Any, given: Any, place: str = "") -> dict[str, list[str]]:
    """The members that the serializer does not have, including those of nested objects."""
    if not isinstance(given, Mapping):
        return {}
    known = {name: field for name, field in serializer.fields.items() if not field.read_only}
    problems = unknown_members(given, known, place)
    for name, field in known.items():
        if isinstance(field, Serializer):
            problems |= _unknown(field, given.get(name), f"{place}{name}.")
    return problems


def _mistyped(serializer: Any, given: Mapping[str, Any]) -> dict[str, list[str]]:
    """The errors for members with the wrong JSON type. REST framework would convert their values."""
    problems = {name: _mistype(field, given.get(name)) for name, field in serializer.fields.items()}
    return {name: [problem] for name, problem in problems.items() if problem}


def _mistype(field: Any, value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match field:
        case fields.CharField() if number:
            return "Must be a string: put it in quotes."
        case fields.IntegerField() if isinstance(value, str):
            return "Must be a whole number, without quotes."
        case fields.ListField() if value is not None and not isinstance(value, list):
            return "Must be a list, in square brackets."
        case fields.DictField() if value is not None and not isinstance(value, dict):
            return "Must be an object, in curly brackets."
        case fields.BooleanField() if number or isinstance(value, str):
            return "Must be true or false, without quotes."
        case fields.ChoiceField() if value is not None and str(value) in map(str, field.choices):
            if value not in field.choices:
                return f"Must be {'a text: put it in' if number else 'a number, without'} quotes."
    return None


def _with_choices(field: Any, errors: Any) -> Any:
    """The errors of a field. A list shows only its first wrong items. A wrong choice shows all choices and the closest
    one.
    """
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
