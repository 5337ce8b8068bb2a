"""The registry behind `GET /v1/admin/health`: each app adds its own figures and their schema."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from rest_framework import serializers

ReadFigures = Callable[[], dict[str, Any]]


class Section(NamedTuple):
    """The figures of an app, and the schema field of each figure."""

    figures: ReadFigures
    shape: dict[str, serializers.Field[Any, Any, Any, Any]]


_sections: list[Section] = []


def register(**shape: serializers.Field[Any, Any, Any, Any]) -> Callable[[ReadFigures], ReadFigures]:
    """Register a function that returns members of `/v1/admin/health`. `shape` describes the members."""

    def add(figures: ReadFigures) -> ReadFigures:
        _sections.append(Section(figures, shape))
        return figures

    return add


def report() -> dict[str, Any]:
    """The figures of all apps."""
    merged: dict[str, Any] = {}
    for section in _sections:
        merged |= section.figures()
    return merged


class HealthReportOut(serializers.Serializer[dict[str, Any]]):
    """The state of the service. Each part of the service adds its own members."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {name: deepcopy(field) for section in _sections for name, field in section.shape.items()}
