"""The registry behind `GET /v1/admin/health`: each app adds its own section when it is ready."""

from collections.abc import Callable
from typing import Any

Section = Callable[[], dict[str, Any]]
_sections: list[Section] = []


def register(section: Section) -> Section:
    """Add a function whose members join the answer of `/v1/admin/health`."""
    _sections.append(section)
    return section


def report() -> dict[str, Any]:
    """Everything the apps report, merged."""
    merged: dict[str, Any] = {}
    for section in _sections:
        merged |= section()
    return merged
