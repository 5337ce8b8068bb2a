"""Rendering of rows by a serializer whose fields are made and bound once for a process.

REST framework makes them anew for each serializer object: for a list of ten rows that costs more than the rows. A
serializer rendered here needs no context: its rows are objects that have every attribute it shows.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple, cast

from rest_framework import serializers
from rest_framework.fields import Field, empty


class _Member(NamedTuple):
    """A member of the answer: how its value is read from a row, and how a value that is not null is shown."""

    name: str
    read: Callable[[Any], Any]
    show: Callable[[Any], Any] | None


_Members = tuple[_Member, ...]


def rendered(serializer: type[serializers.Serializer[Any]], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows as `serializer(rows, many=True).data` shows them."""
    return _shown(_members(cast("Hashable", serializer)), rows)


def _shown(members: _Members, rows: Iterable[Any]) -> list[dict[str, Any]]:
    answers = []
    for row in rows:
        answer = {}
        for name, read, show in members:
            value = read(row)
            answer[name] = value if value is None or show is None else show(value)
        answers.append(answer)
    return answers


@cache
def _members(serializer: Any) -> _Members:
    return _members_of(serializer())


def _members_of(bound: serializers.Serializer[Any]) -> _Members:
    return tuple(
        _Member(str(field.field_name), _reader(field), _shower(field))
        for field in bound.fields.values()
        if not field.write_only
    )


def _reader(field: "Field[Any, Any, Any, Any]") -> Callable[[Any], Any]:
    """A plain attribute is read as one; a path, the whole row and an attribute with a default by the field itself."""
    if isinstance(field, serializers.SerializerMethodField):
        method: Callable[[Any], Any] = getattr(field.parent, str(field.method_name))
        return method
    is_plain = (
        type(field).get_attribute is Field.get_attribute
        and len(field.source_attrs) == 1
        and field.default is empty
    )
    return attrgetter(field.source_attrs[0]) if is_plain else field.get_attribute


def _shower(field: "Field[Any, Any, Any, Any]") -> Callable[[Any], Any] | None:
    match type(field).to_representation:
        case serializers.Serializer.to_representation:
            members = _members_of(cast("serializers.Serializer[Any]", field))
            return lambda row: _shown(members, (row,))[0]
        case serializers.ListSerializer.to_representation if _is_plain(field.child):  # type: ignore[attr-defined]
            return partial(_shown, _members_of(field.child))  # type: ignore[attr-defined]
        case serializers.CharField.to_representation:
            return str
        case serializers.ChoiceField.to_representation if _is_of_words(field):
            return str
        case serializers.IntegerField.to_representation:
            return int
        case serializers.BooleanField.to_representation:
            return bool
        case serializers.SerializerMethodField.to_representation:
            # What its method gives is what is shown.
            return None
        case serializers.DateTimeField.to_representation | serializers.UUIDField.to_representation:
            # The JSON renderer writes moments and UUIDs.
            return None
    return field.to_representation


def _is_plain(nested: Any) -> bool:
    return type(nested).to_representation is serializers.Serializer.to_representation


def _is_of_words(choice: Any) -> bool:
    return all(isinstance(word, str) for word in choice.choices)
