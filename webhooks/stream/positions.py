"""Positions of events in the event stream: the number of the transaction that committed each, then its id.

Ids are made before the commit, sometimes long before, so a reader that went by ids would pass events that are not
visible yet. A transaction's number orders commits well enough: once every transaction below a number has ended
(`pg_snapshot_xmin`), nothing new can appear below it. `events.position` is filled in by the database's default, so no
flow that publishes knows of it.
"""

import re
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from gateway import ids
from gateway.database import partition_indexes
from gateway.database.statements import Statements

ADD_COLUMN = """
ALTER TABLE events ADD COLUMN IF NOT EXISTS position xid8;
ALTER TABLE events ALTER COLUMN position SET DEFAULT pg_current_xact_id();
"""
DROP_COLUMN = "ALTER TABLE events DROP COLUMN position;"
_INDEX = "event_by_position"
_TEXT = re.compile(r"(\d{1,19})\.(evt_\w{26})")
_NONE = UUID(int=0)


class Position(NamedTuple):
    """A place in the stream: after the event `event_id` of the transaction `transaction_id`."""

    transaction_id: int
    event_id: UUID

    def __str__(self) -> str:
        return f"{self.transaction_id}.{ids.encode(ids.EVENT, self.event_id)}"


BEGINNING = Position(0, _NONE)


class Horizon(NamedTuple):
    """The transactions of a moment: all below `settled` have ended, none from `begun` on has begun."""

    settled: int
    begun: int


def horizon() -> Statements[Horizon]:
    """The horizon now."""
    ((settled, begun),) = yield (
        "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() s",
        {},
    )
    return Horizon(int(settled), int(begun))


def present() -> Statements[Position]:
    """The place after all that has been committed, and before all that is under way."""
    return Position((yield from horizon()).settled, _NONE)


def resumed(text: str, *, tenant_id: UUID, environment: str) -> Statements[Position | None]:
    """The place that `Last-Event-ID` names: of the stream itself, or the public id of an event of the caller's.

    None when it names none. A place beyond the last transaction is of a database that was restored since: all events
    after the restore come after it.
    """
    if found := _TEXT.fullmatch(text):
        event_id = ids.decode(ids.EVENT, found[2])
        if event_id is None:
            return None
        position = Position(int(found[1]), event_id)
        begun = (yield from horizon()).begun
        return position if position.transaction_id < begun or event_id == _NONE else BEGINNING
    event_id = ids.decode(ids.EVENT, text)
    if event_id is None:
        return None
    rows = yield (
        "SELECT position::text FROM events WHERE id = %(id)s AND tenant_id = %(tenant_id)s "
        "AND environment = %(environment)s",
        {"id": event_id, "tenant_id": tenant_id, "environment": environment},
    )
    if not rows:
        return None
    return Position(int(rows[0][0]), event_id) if rows[0][0] else BEGINNING


def build_index(editor: BaseDatabaseSchemaEditor) -> None:
    """Build the index that the stream is read by, beside the traffic."""
    on = "(tenant_id, environment, position, id) WHERE position IS NOT NULL"
    partition_indexes.build(editor, table="events", index=_INDEX, on=on)


def forget() -> None:
    """Forget the positions of all events: after a restore, when transactions are numbered from the beginning again."""
    with connection.cursor() as cursor:
        cursor.execute(DROP_COLUMN + ADD_COLUMN)
    with connection.schema_editor(atomic=False) as editor:
        build_index(editor)
