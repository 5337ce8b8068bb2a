"""The staff admin's first page: what needs attention, and the last day by the hour."""

from typing import Any

from django.http import HttpRequest


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's dashboard callback: the context of `templates/admin/index.html`."""
    return context
