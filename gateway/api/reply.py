"""A finished answer of the API apart from any framework: what is stored, replayed, or sent by either web process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.http import HttpResponse


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, headers and exact bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def as_response(self) -> HttpResponse:
        """The same answer as Django's."""
        return HttpResponse(self.body, status=self.status, headers=dict(self.headers))
