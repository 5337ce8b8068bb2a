"""Bounded lists: a page walks an index from the newest row on, past at most `MOST_WALKED` rows, to those that match.

Conditions without an index of their own could be met by none of millions of rows. So a page ends where its walk ends,
even if it holds few rows or none, and the next page goes on from there.

The rows of the last `RECENT` fill most pages, so those are looked at first: two years of a table are a hundred
partitions, and to plan for all of them takes many times as long as to read the page. Where they do not, partitions
older than the tenant's oldest row are left out: a new tenant of an old installation has rows in few of them.

A walk through all recent rows of a tenant is prepared and planned once. The others are planned for their parameters:
one plan for all values could take the index by tenant for a filter that many rows meet on average, and with a value
that none meets it would read them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS

from gateway import ids
from gateway.clock import now
from gateway.database.statements import Instance, StoredRows, bulk_cursor

MOST_WALKED = 10_000
"""Rows that one page reads of an index."""
FIRST_WALK = 2
"""The first walk of a page reads this many times the rows of a full page: in most lists few rows do not match."""
RECENT = timedelta(days=7)
"""How far before the end of a page its rows are looked for first."""
Row = TypeVar("Row")
FIRST_ID = UUID(int=0)
LAST_ID = UUID(int=2**128 - 1)
CLOCKS_DIFFER = timedelta(days=1)
"""How far the clocks of processes may differ at most."""

_ALL = """
    SELECT {columns} FROM {table} WHERE {scope} {equal} AND id >= %(first)s AND id < %(before)s
    ORDER BY {order} LIMIT %(walked)s
"""
_OF_TENANT = "tenant_id = %(tenant_id)s"
# One plan for all tenants must not take the primary key, past the rows of all others, because most rows are of one
# tenant. In the order by tenant only the index by tenant serves; with a plain comparison that order would be dropped.
_OF_ANY_TENANT = "tenant_id = ANY(ARRAY[%(tenant_id)s::uuid])"
_BY_TENANT = "tenant_id, id DESC"
# Of each value a walk of its own: one walk through all of them could pass millions on the way to a rare one.
_EACH = """
    SELECT walk.* FROM unnest(%(values)s::text[]) AS each (value) CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE {scope} AND {column} = each.value AND id >= %(first)s AND id < %(before)s
        ORDER BY id DESC LIMIT %(walked)s
    ) AS walk
"""
_MONTHS = "month BETWEEN %(first_month)s AND %(last_month)s"
# Prepared: planned once for all tenants. In this order no index but (tenant_id, -id) serves; if the tenant were a
# constant the primary key could as well, past the rows of all others.
_OLDEST = """
SELECT id FROM {table} WHERE tenant_id BETWEEN %(tenant_id)s AND %(tenant_id)s ORDER BY tenant_id DESC, id LIMIT 1
"""
# Its rows fill a page, or it tells nothing: where the walk ends is not asked.
_RECENT = """
SELECT * FROM ({rows}) AS walked WHERE {conditions} ORDER BY id DESC LIMIT %(limit)s
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
class Page(Generic[Row]):
    """Rows, newest first, and the id before which the next page begins.

    A page can hold fewer rows than were asked for, even none, and still have a next one: then its walk ended first.
    """

    rows: Sequence[Row]
    before: UUID | None
    """None on the last page."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The bounds of a page: rows from `first` to before `before`, at most `limit`, that meet the conditions."""

    conditions: str
    parameters: Mapping[str, Any]
    first: UUID
    before: UUID
    limit: int
    using: str


@dataclass(frozen=True, slots=True)
class BoundedList(Generic[Instance]):
    """A table whose rows are listed by their time-ordered `id`, which is one of the columns."""

    stored: StoredRows[Instance]
    by_month: bool = False
    """Whether the table is partitioned by a column `month`, the month of the id, and not by the id itself."""
    plans_once: bool = True
    """Whether one plan for the recent rows of all tenants takes the index by tenant, also in a small table."""
    finds_oldest: bool = False
    """Whether an index (tenant_id, -id) over all rows finds a tenant's oldest one."""

    def page(
        self,
        walks: Sequence[Walk],
        *,
        conditions: Sequence[str] = (),
        parameters: Mapping[str, Any],
        first: UUID = FIRST_ID,
        before: UUID = LAST_ID,
        limit: int,
        using: str = DEFAULT_DB_ALIAS,
    ) -> Page[Instance]:
        """The newest rows from `first` to before `before` that meet all conditions, at most `limit`.

        Each of the walks could serve alone. The page is read by the first that fills it or reaches the oldest row,
        else by the one that reaches the farthest.
        """
        before = min(before, id_after_all())
        wanted = _Wanted(" AND ".join(conditions) or "true", parameters, first, before, limit, using)
        since = ids.first_at(ids.created_at(before) - RECENT)
        if since > first:
            if (recent := self._recent(walks[0], replace(wanted, first=since))) is not None:
                return recent
            if self.finds_oldest and settings.DATABASE_PREPARED_STATEMENTS:
                oldest = self._oldest(wanted)
                if oldest is None:
                    return Page([], None)
                wanted = replace(wanted, first=max(first, oldest))
        farthest, reached = None, LAST_ID
        for walk, most in self._attempts(walks, limit + 1):
            found = self._walked(walk, most, wanted)
            if len(found.rows) == limit or found.before is None:
                return found
            if farthest is None or found.before <= reached:
                farthest, reached = found, found.before
        assert farthest is not None  # noqa: S101 - there is at least one walk
        return farthest

    def _recent(self, walk: Walk, wanted: _Wanted) -> Page[Instance] | None:
        """The page, if the recent rows that are wanted fill it and one is left for the next."""
        most = min(FIRST_WALK * (wanted.limit + 1), MOST_WALKED)
        if len(walk.values) > 1:
            found = self._walked(walk, most, wanted)
            return found if len(found.rows) == wanted.limit and found.before is not None else None
        rows = self._read(_RECENT, walk, most, wanted)
        return self._page(rows, wanted.limit) if len(rows) > wanted.limit else None

    def _oldest(self, wanted: _Wanted) -> UUID | None:
        """The id of the tenant's oldest row."""
        with bulk_cursor(prepared=True, using=wanted.using) as cursor:
            cursor.execute(
                _OLDEST.format(table=self.stored.table), {"tenant_id": wanted.parameters["tenant_id"]}
            )
            found = cursor.fetchone()
        return found[0] if found else None

    @staticmethod
    def _attempts(walks: Sequence[Walk], full: int) -> Iterator[tuple[Walk, int]]:
        """Each walk with the rows that it may read of each of its values."""
        most = [MOST_WALKED // max(1, len(walk.values)) for walk in walks]
        short = min(FIRST_WALK * full, most[0])
        yield walks[0], short
        for number, walk in enumerate(walks):
            if number or most[0] > short:
                yield walk, most[number]

    def _walked(self, walk: Walk, most: int, wanted: _Wanted) -> Page[Instance]:
        answered = self._read(_PAGE, walk, most, wanted)
        place = self.stored.columns.index("id")
        rows = [row[1:] for row in answered if row[1 + place] is not None]
        return self._page(rows, wanted.limit, ended=answered[0][0])

    def _page(self, rows: Sequence[tuple[Any, ...]], limit: int, ended: UUID | None = None) -> Page[Instance]:
        """At most `limit` of the rows; before the last of them, or where the walk `ended`, the next page begins."""
        is_full = len(rows) > limit
        before = rows[limit - 1][self.stored.columns.index("id")] if is_full else ended
        return Page([self.stored.instance(row) for row in rows[:limit]], before)

    def _read(self, form: str, walk: Walk, most: int, wanted: _Wanted) -> list[tuple[Any, ...]]:
        is_of_several = len(walk.values) > 1
        is_prepared = (
            form is _RECENT
            and walk.column is None
            and self.plans_once
            and settings.DATABASE_PREPARED_STATEMENTS
        )
        scope = walk.scope.replace(_OF_TENANT, _OF_ANY_TENANT) if is_prepared else walk.scope
        statement = form.format(
            rows=(_EACH if is_of_several else _ALL).format(
                columns=self.stored,
                table=self.stored.table,
                scope=f"{scope} AND {_MONTHS}" if self.by_month else scope,
                order=_BY_TENANT if is_prepared else "id DESC",
                column=walk.column,
                equal=f"AND {walk.column} = %(value)s" if walk.column else "",
            ),
            grouped=f"GROUP BY {walk.column}" if is_of_several else "",
            conditions=wanted.conditions,
        )
        values = {
            **wanted.parameters,
            "value": next(iter(walk.values), None),
            "values": list(walk.values),
            "first": wanted.first,
            "before": wanted.before,
            "first_month": ids.month_of(wanted.first),
            "last_month": ids.month_of(wanted.before),
            "walked": most,
            "limit": wanted.limit + 1,
        }
        with bulk_cursor(prepared=is_prepared, literal=not is_prepared, using=wanted.using) as cursor:
            cursor.execute(statement, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def id_after_all() -> UUID:
    """An id after those of all rows made until now, whatever the clock of their process. It leaves later partitions
    out."""
    return ids.first_at(now() + CLOCKS_DIFFER)
