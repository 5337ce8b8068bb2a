"""Bounded lists: a page walks an index from the newest row on, past at most `MOST_WALKED` rows, to those that match.

Conditions without an index of their own could be met by none of millions of rows. So a page ends where its walk ends,
even if it holds few rows or none, and the next page goes on from there.

The statements are planned for their parameters, not prepared: one plan for all values could take the index by tenant
for a filter that many rows meet on average, and with a value that none meets it would read them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections

from gateway import ids
from gateway.clock import now

MOST_WALKED = 10_000
"""Rows that one page reads of an index."""
FIRST_WALK = 2
"""The first walk of a page reads so many times the rows of a full page: most lists have few rows that do not match."""
LAST_ID = UUID(int=2**128 - 1)
CLOCKS_DIFFER = timedelta(days=1)
"""How far the clocks of processes may differ at most."""

_ALL = """
    SELECT {columns} FROM {table} WHERE {scope} {equal} AND id >= %(first)s AND id < %(before)s
    ORDER BY id DESC LIMIT %(walked)s
"""
# Of each value a walk of its own: one walk through all of them could pass millions on the way to a rare one.
_EACH = """
    SELECT walk.* FROM unnest(%(values)s::text[]) AS each (value) CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE {scope} AND {column} = each.value AND id >= %(first)s AND id < %(before)s
        ORDER BY id DESC LIMIT %(walked)s
    ) AS walk
"""
# Where several walks end early, nothing older than the nearest end is complete.
_PAGE = """
WITH walked AS MATERIALIZED ({rows}), ended AS (
    SELECT min(id::text) AS id FROM walked {grouped} HAVING count(*) >= %(walked)s
)
SELECT nearest.id, found.*
FROM (SELECT (SELECT max(id)::uuid FROM ended)) AS nearest (id)
LEFT JOIN LATERAL (
    SELECT * FROM walked WHERE {conditions} AND id >= coalesce(nearest.id, %(first)s) ORDER BY id DESC LIMIT %(limit)s
) AS found ON true
ORDER BY found.id DESC
"""


@dataclass(frozen=True, slots=True)
class Walk:
    """An index that ends in the id: of all rows within `scope`, or of those whose `column` has one of `values`."""

    scope: str
    column: str | None = None
    values: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class WalkedPage:
    """Rows, newest first, with the list's columns, and the id before which the next page begins."""

    rows: Sequence[tuple[Any, ...]]
    before: UUID | None
    """None on the last page."""


@dataclass(frozen=True, slots=True)
class BoundedList:
    """A table whose rows are listed by their time-ordered `id`, which is one of the columns."""

    table: str
    columns: Sequence[str]

    def page(
        self,
        walks: Sequence[Walk],
        *,
        conditions: Sequence[str] = (),
        parameters: Mapping[str, Any],
        first: UUID = UUID(int=0),  # noqa: B008 - immutable
        before: UUID = LAST_ID,
        limit: int,
        using: str = DEFAULT_DB_ALIAS,
    ) -> WalkedPage:
        """The newest rows from `first` to before `before` that meet all conditions, at most `limit`.

        Each of the walks could serve alone. The page is read by the first that fills it or reaches the oldest row,
        else by the one that reaches the farthest.
        """
        before = min(before, id_after_all())
        farthest, reached = None, LAST_ID
        for walk, most in self._attempts(walks, limit + 1):
            found = self._walked(walk, most, conditions, parameters, first, before, limit, using)
            if len(found.rows) == limit or found.before is None:
                return found
            if farthest is None or found.before <= reached:
                farthest, reached = found, found.before
        assert farthest is not None  # noqa: S101 - there is at least one walk
        return farthest

    @staticmethod
    def _attempts(walks: Sequence[Walk], full: int) -> Iterator[tuple[Walk, int]]:
        """Each walk with the rows that it may read of each of its values."""
        most = [MOST_WALKED // max(1, len(walk.values)) for walk in walks]
        short = min(FIRST_WALK * full, most[0])
        yield walks[0], short
        for number, walk in enumerate(walks):
            if number or most[0] > short:
                yield walk, most[number]

    def _walked(
        self,
        walk: Walk,
        most: int,
        conditions: Sequence[str],
        parameters: Mapping[str, Any],
        first: UUID,
        before: UUID,
        limit: int,
        using: str,
    ) -> WalkedPage:
        is_of_several = len(walk.values) > 1
        statement = _PAGE.format(
            rows=(_EACH if is_of_several else _ALL).format(
                columns=", ".join(self.columns),
                table=self.table,
                scope=walk.scope,
                column=walk.column,
                equal=f"AND {walk.column} = %(value)s" if walk.column else "",
            ),
            grouped=f"GROUP BY {walk.column}" if is_of_several else "",
            conditions=" AND ".join(conditions) or "true",
        )
        values = {
            **parameters,
            "value": next(iter(walk.values), None),
            "values": list(walk.values),
            "first": first,
            "before": before,
            "walked": most,
            "limit": limit + 1,
        }
        with connections[using].cursor() as cursor:
            cursor.execute(statement, values)
            answered = cursor.fetchall()
        ended, place = answered[0][0], self.columns.index("id")
        rows = [row[1:] for row in answered if row[1 + place] is not None]
        if len(rows) > limit:
            return WalkedPage(rows[:limit], rows[limit - 1][place])
        return WalkedPage(rows, ended)


def id_after_all() -> UUID:
    """An id after those of all rows made until now, whatever the clock of their process. It leaves later partitions
    out."""
    return ids.first_at(now() + CLOCKS_DIFFER)
