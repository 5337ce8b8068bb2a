"""What a caller of the event stream asks for: filters in the query, and the place to go on from."""

from typing import NamedTuple
from uuid import UUID

from django.http import QueryDict

from gateway.api.errors import InvalidRequest
from gateway.database.statements import Statements
from webhooks.events.types import EVENT_TYPES
from webhooks.stream.positions import Position, present, resumed

PARAMETERS = {"type": 2_000, "phone_number_id": 64}
"""The query's parameters, with their longest values."""


class Asked(NamedTuple):
    """The filters of a stream; empty types are all."""

    types: frozenset[str]
    phone_number_id: str | None

    def wants(self, kind: str, phone_number_id: str | None) -> bool:
        """Whether an event of this type and number passes."""
        return (not self.types or kind in self.types) and self.phone_number_id in {None, phone_number_id}


def asked_of(query: QueryDict) -> Asked:
    """The filters in a query. Raises InvalidRequest for what is unknown, repeated or empty."""
    problems: dict[str, str] = {}
    for name, values in query.lists():
        if name not in PARAMETERS:
            known = ", ".join(sorted(PARAMETERS))
            problems[name] = f"This query parameter is unknown. The known ones are: {known}."
        elif len(values) > 1:
            problems[name] = "This query parameter may be given only once."
        elif not values[0] or "\0" in values[0] or len(values[0]) > PARAMETERS[name]:
            problems[name] = f"Must have 1 to {PARAMETERS[name]} characters."
    types = frozenset(filter(None, (query.get("type") or "").split(",")))
    if "type" not in problems and (unknown := types - set(EVENT_TYPES)):
        problems["type"] = f"Unknown: {', '.join(sorted(unknown))[:200]}."
    if problems:
        raise InvalidRequest.of(**problems)
    return Asked(types, query.get("phone_number_id"))


def place_of(last_event_id: str | None, *, tenant_id: UUID, environment: str) -> Statements[Position]:
    """The place to go on from; without `Last-Event-ID` it is now. Raises InvalidRequest for one that is no place."""
    if not last_event_id:
        return (yield from present())
    position = yield from resumed(last_event_id, tenant_id=tenant_id, environment=environment)
    if position is None:
        raise InvalidRequest(
            "Last-Event-ID names no event of yours.",
            hint="Send the id of the last event of the stream, or the `id` of an event, or leave the header out.",
            details={"fields": {"Last-Event-ID": ["Names no event of yours."]}},
        )
    return position
