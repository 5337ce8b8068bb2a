"""Request bodies through their In serializers: the values, or a 400 that says what each field may be."""

import re
from typing import Any

from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.serializers import BaseSerializer

from gateway.api.nearest import did_you_mean

_INVALID_CHOICE = re.compile(r'"(.*)" is not a valid choice\.', re.DOTALL)


def checked(serializer: BaseSerializer[Any]) -> dict[str, Any]:
    """The validated values. Raises ValidationError, which becomes 400 `invalid_request`."""
    if not serializer.is_valid():
        raise ValidationError(_with_choices(serializer, serializer.errors))
    values: dict[str, Any] = serializer.validated_data
    return values


def _with_choices(field: Any, errors: Any) -> Any:
    """The errors of a field; where a choice is wrong, the sentence names the choices and the nearest."""
    if isinstance(errors, dict):
        children = getattr(field, "fields", {})
        item = getattr(field, "child", None)
        return {name: _with_choices(children.get(name, item), found) for name, found in errors.items()}
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
