"""Bounded lists: a page reads at most `MOST_WALKED` rows of an index, newest first, and returns the matching rows.

A filter without its own index may match none of millions of rows. So a page ends where its walk ends, even if it has
few rows or none, and the next page continues there.

The rows of the last `RECENT` fill most pages, so they are read first. Two years of a table are a hundred partitions,
and planning for all of them takes much longer than reading the page. If the recent rows do not fill the page, the walk
leaves out partitions older than the tenant's oldest row. A new tenant has rows in few partitions.

A walk through all recent rows of a tenant is prepared and planned once. Other walks are planned for their parameters,
because one plan for all values expects many matching rows. Such a plan could use the index by tenant, and would read
all rows for a value without matches.
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
"""Maximum number of rows that one page reads from an index."""
FIRST_WALK = 2
"""The first walk reads this many times the rows of a full page, because in most lists nearly all rows match."""
RECENT = timedelta(days=7)
"""The first search reads only rows that are at most this much older than a page's newest possible row."""
Row = TypeVar("Row")
FIRST_ID = UUID(int=0)
LAST_ID = UUID(int=2**128 - 1)
CLOCKS_DIFFER = timedelta(days=1)
"""Maximum difference between the clocks of processes."""

_ALL = """
    SELECT {columns} FROM {table} WHERE {scope} {equal} AND id >= %(first)s AND id < %(before)s
    ORDER BY {order} LIMIT %(walked)s
"""
_OF_TENANT = "tenant_id = %(tenant_id)s"
# One plan serves all tenants. With `=`, Postgres would drop the tenant from ORDER BY. If one tenant has most rows,
# Postgres would then scan the primary key, through the rows of all tenants. Only the index by tenant fits an order by
# tenant.
_OF_ANY_TENANT = "tenant_id = ANY(ARRAY[%(tenant_id)s::uuid])"
_BY_TENANT = "tenant_id, id DESC"
# One walk for each value. A single walk for all values could pass millions of rows on the way to a rare value.
_EACH = """
    SELECT walk.* FROM unnest(%(values)s::text[]) AS each (value) CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE {scope} AND {column} = each.value AND id >= %(first)s AND id < %(before)s
        ORDER BY id DESC LIMIT %(walked)s
    ) AS walk
"""
_MONTHS = "month BETWEEN %(first_month)s AND %(last_month)s"
# One prepared plan serves all tenants. BETWEEN keeps the tenant in ORDER BY, which only the index (tenant_id, -id)
# fits. With `=`, Postgres would drop the tenant from ORDER BY, and could scan the primary key, through all tenants'
# rows.
_OLDEST = """
SELECT id FROM {table} WHERE tenant_id BETWEEN %(tenant_id)s AND %(tenant_id)s ORDER BY tenant_id DESC, id LIMIT 1
"""
# This result is used only when it fills a page, so it does not report where the walk ended.
_RECENT = """
SELECT * FROM ({rows}) AS walked WHERE {conditions} ORDER BY id DESC LIMIT %(limit)s
"""
# When several walks end early, the result is complete only down to the newest row at which one of them ended.
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
    """The rows that a walk passes: all rows within `scope`, or those whose `column` has one of `values`.

    The walked index ends with the id.
    """

    scope: str
    column: str | None = None
    values: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows, newest first, and the place where the next page begins.

    A page whose walk ended early can have fewer rows than requested, even none, and a next page.
    """

    rows: Sequence[Row]
    before: UUID | None
    """All ids of the next page are lower than this id. None on the last page."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a page needs: at most `limit` rows that match the conditions, with `first` <= id < `before`."""

    conditions: str
    parameters: Mapping[str, Any]
    first: UUID
    before: UUID
    limit: int
    using: str


@dataclass(frozen=True, slots=True)
class BoundedList(Generic[Instance]):
    """A table whose rows are listed by their time-ordered `id`."""

    stored: StoredRows[Instance]
    by_month: bool = False
    """Whether the table is partitioned by a column `month`, the month of the id, rather than by the id."""
    plans_once: bool = True
    """Whether one plan for all tenants' recent rows uses the index by tenant, even in a small table."""
    finds_oldest: bool = False
    """Whether an index (tenant_id, -id) over all rows finds a tenant's oldest row."""

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
        """At most `limit` of the newest rows that match all conditions, with `first` <= id < `before`.

        Each walk alone gives a correct page. The result is that of the first walk that fills the page or reaches the
        oldest row. If there is none, it is that of the walk that reached farthest.
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
        """The page from the recent rows. None unless they fill the page and leave a row for the next page."""
        most = min(FIRST_WALK * (wanted.limit + 1), MOST_WALKED)
        if len(walk.values) > 1:
            found = self._walked(walk, most, wanted)
            return found if len(found.rows) == wanted.limit and found.before is not None else None
        rows = self._read(_RECENT, walk, most, wanted)
        return self._page(rows, wanted.limit) if len(rows) > wanted.limit else None

    def _oldest(self, wanted: _Wanted) -> UUID | None:
        """The id of the tenant's oldest row. None if the tenant has no rows."""
        with bulk_cursor(prepared=True, using=wanted.using) as cursor:
            cursor.execute(
                _OLDEST.format(table=self.stored.table), {"tenant_id": wanted.parameters["tenant_id"]}
            )
            found = cursor.fetchone()
        return found[0] if found else None

    @staticmethod
    def _attempts(walks: Sequence[Walk], full: int) -> Iterator[tuple[Walk, int]]:
        """The walks to try in turn, each with the number of rows that it may read per value."""
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
        """A page with at most `limit` of the rows. The next page continues after the last of these rows, or where the
        walk ended.
        """
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


def conditions_of(equal: Mapping[str, Any]) -> list[str]:
    """SQL: each column has its value, or one of a list of values. The parameters have the columns' names."""
    return [
        f"{name} = ANY(%({name})s)" if isinstance(value, list) else f"{name} = %({name})s"
        for name, value in equal.items()
    ]


def values_of(value: Any) -> list[Any]:
    """The values of a column in `conditions_of`, for a walk."""
    return value if isinstance(value, list) else [value]


def id_after_all() -> UUID:
    """An id after all existing rows, even if processes' clocks differ. It excludes later partitions from a walk."""
    return ids.first_at(now() + CLOCKS_DIFFER)
