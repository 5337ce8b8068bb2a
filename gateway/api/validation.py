"""Reading a request through its In serializer: what every view does before its one call."""

from typing import Any

from rest_framework.serializers import BaseSerializer


def checked(serializer: BaseSerializer[Any]) -> dict[str, Any]:
    """The validated values; otherwise REST framework's ValidationError, which becomes 400 `invalid_request`."""
    serializer.is_valid(raise_exception=True)
    values: dict[str, Any] = serializer.validated_data
    return values
