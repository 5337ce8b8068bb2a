"""Statements with hundreds of ids and bodies: parameters and results travel in binary.

Django's own cursors write each parameter into the statement's text and read results as text. At thousands of deliveries
a second, this conversion would take most of the time that a process spends on the database.

A flow of statements is written once, as a generator (`Statements`), and runs on Django's connection (`run`) or on an
event loop (`LoopConnection`). `LoopGroupCommit` writes items on an event loop. At low load an item is written at once.
Under load many items share a statement, a commit and a write to disk.
"""

import asyncio
import math
import re
import select
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.db.backends.utils import CursorWrapper
from django.db.models import Model

from gateway.database.transactions import concerns_all

Instance = TypeVar("Instance", bound=Model)
Result = TypeVar("Result")
Statements = Generator[tuple[str, Any], list[tuple[Any, ...]], Result]
"""A generator that yields statements with their parameters, receives their rows, and returns the result of the flow."""

ONLY_WHEN_ASKED = 2**31
"""A number of executions that no statement reaches. With it psycopg prepares a statement only on request."""

_PLACEHOLDER = re.compile(r"%(?:%|s|\((\w+)\)s)")


@lru_cache(maxsize=1024)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...] | None]:
    """A statement with its parameters numbered for Postgres, and the parameters' names in order. None instead of the
    names if the parameters have none.

    psycopg itself parses the placeholders of a statement of more than 4,096 bytes again at each execution.
    """
    names: dict[str, int] = {}

    def number(found: "re.Match[str]") -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or str(len(names))
        return f"${names.setdefault(name, len(names) + 1)}"

    text = _PLACEHOLDER.sub(number, statement).encode()
    return text, None if "0" in names else tuple(names)


def _raw(query: str, params: Any) -> tuple[str | bytes, Any]:
    """Convert a statement and its parameters for psycopg's raw cursors."""
    if params is None:
        return query, None
    text, names = _numbered(query)
    return text, params if names is None else [params[name] for name in names]


class _PreparingCursor(psycopg.RawCursor[Any]):
    """Prepares each statement at its first execution on a connection. Later executions need no parsing and planning."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        return super().execute(*_raw(query, params), **{**options, "prepare": True})


class _LiteralCursor(psycopg.Cursor[Any]):
    """Writes the parameters into the statement's text. psycopg's own cursor that does so has no binary results."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        text = psycopg.ClientCursor(self.connection).mogrify(query, params) if params is not None else query
        return super().execute(text, **options)


@contextmanager
def bulk_cursor(
    *, prepared: bool = False, literal: bool = False, using: str = DEFAULT_DB_ALIAS
) -> Iterator[CursorWrapper]:
    """A cursor on Django's connection, inside its transaction. Raises Django's database errors.

    A thread without a connection borrows one from the pool for the cursor only. Making it Django's connection would
    cost as much as a small statement. `prepared` is for the few statements that every event needs and whose plan does
    not depend on the parameters. Parsing and planning such a statement costs more than executing it.
    `DATABASE_PREPARED_STATEMENTS` switches `prepared` off. `literal` writes the parameters into the text, for a
    statement whose plan depends on them. A web process otherwise lets Postgres plan once for all parameters
    (`database/pool.py`).
    """
    # `connection` would look this object up again at each attribute.
    database: Any = connections[using]
    is_prepared = prepared and settings.DATABASE_PREPARED_STATEMENTS
    kind = _LiteralCursor if literal else _PreparingCursor if is_prepared else psycopg.Cursor
    pool = database.pool if database.connection is None else None
    with database.wrap_database_errors:
        if pool is None:
            database.ensure_connection()
            connected = database.connection
        else:
            pool.open()
            connected = pool.getconn()
        try:
            if pool is not None and not connected.autocommit:
                # A transaction that was closed halfway leaves autocommit off. Without this line, all writes would be
                # rolled back.
                connected.autocommit = True
            with kind(connected) as binary:
                if is_prepared:
                    connected.prepare_threshold = ONLY_WHEN_ASKED
                binary.format = psycopg.pq.Format.BINARY
                # Typed like Django's wrapper. The wrapper is slower, and only needed to log statements.
                cursor: Any = binary
                if database.queries_logged:
                    cursor = database.make_debug_cursor(binary)
                elif database.execute_wrappers:
                    cursor = database.make_cursor(binary)
                yield cursor
        finally:
            if pool is not None:
                pool.putconn(connected)


class StoredRows(Generic[Instance]):
    """The columns of a model in the order in which a statement selects them, except those in `without`.

    An excluded column is read when it is accessed, like a column that `defer` names.
    """

    def __init__(self, model: type[Instance], *, without: Collection[str] = ()) -> None:
        self.table = model._meta.db_table
        self.columns = tuple(
            field.attname for field in model._meta.concrete_fields if field.attname not in without
        )
        self._model = model

    def __str__(self) -> str:
        """The columns in the form of a select list."""
        return ", ".join(self.columns)

    def instance(self, row: Sequence[Any]) -> Instance:
        """A model instance from a row."""
        return self._model.from_db(DEFAULT_DB_ALIAS, self.columns, row)


def id_range(values: Collection[UUID]) -> dict[str, UUID]:
    """The parameters `first` and `last` of `id BETWEEN %(first)s AND %(last)s`.

    On a table partitioned by id, a prepared statement finds its partitions by such a range, but not by an array.
    """
    return {"first": min(values), "last": max(values)}


def uuids(values: Iterable[UUID]) -> str:
    """A uuid[] parameter, for `%s::uuid[]`. psycopg would adapt each element in Python, which is slower."""
    return f"{{{','.join([value.hex for value in values])}}}"


def run(statements: Statements[Result], *, prepared: bool = False) -> Result:
    """Run statements on Django's connection, inside its transaction if there is one."""
    with bulk_cursor(prepared=prepared) as cursor:
        try:
            step = next(statements)
            while True:
                cursor.execute(*step)
                step = statements.send(cursor.fetchall() if cursor.pgresult.nfields else [])
        except StopIteration as end:
            result: Result = end.value
            return result


STATEMENT_SECONDS = 8.0
"""How long a caller waits for its statements, including the time to connect. Cancelling takes up to CANCEL_SECONDS
more, so a call is refused within 10 s while Postgres stands still.
"""
CANCEL_SECONDS = 1.0
"""How long Postgres may take to confirm that a statement is cancelled."""


class _Connection(psycopg.AsyncConnection[Any]):
    """Closes when Postgres does not answer a cancellation. psycopg would wait 10 s more for the statement."""

    async def cancel_safe(self, *, timeout: float = CANCEL_SECONDS) -> None:  # noqa: ASYNC109 - psycopg's signature
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_SECONDS))
        except Exception:
            self.pgconn.finish()
            raise


class LoopConnection:
    """A database connection of an event loop, for one caller at a time. Opened when needed. Reopened after an error, or
    after Postgres ended the idle connection.

    In a busy process, a thread with its own connection would compete with the loop for the interpreter at every row.
    Statements are prepared at their first execution (`DATABASE_PREPARED_STATEMENTS`). Without `durable`, commits do not
    wait for the disk. This suits writes that a crash of Postgres may lose, such as leases.
    """

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._received = select.poll()
        # Stored here, because reading this attribute in a task of an event loop creates a connection object of Django.
        self._errors = connection.wrap_database_errors

    async def run(self, statements: Statements[Result]) -> Result:
        """Run statements in one transaction. Raises Django's database errors."""
        with self._errors:
            try:
                connected = await self._open()
                async with connected.transaction():
                    return await self._execute(connected, statements)
            except BaseException:
                await self.close()
                raise

    async def run_each(self, statements: Statements[Result]) -> Result:
        """Run statements, each in its own transaction. This saves two round trips for a single statement.

        Raises Django's database errors.
        """
        with self._errors:
            try:
                return await self._execute(await self._open(), statements)
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """Close the connection. The next flow opens another."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _open(self) -> "psycopg.AsyncConnection[Any]":
        # An idle client receives data only when Postgres ends its session, or reloads its settings and some have
        # changed.
        if self._connection is not None and (self._connection.closed or self._received.poll(0)):
            await self.close()
        if self._connection is None:
            parameters = {**connection.get_connection_params(), "cursor_factory": psycopg.AsyncRawCursor}
            self._connection = await _Connection.connect(**parameters, autocommit=True)
            self._received = select.poll()
            self._received.register(self._connection.fileno(), select.POLLIN)
            if settings.DATABASE_PREPARED_STATEMENTS:
                self._connection.prepare_threshold = ONLY_WHEN_ASKED
                if not self._durable:
                    # Set for the session, so it does not suit a pooler that shares sessions.
                    await self._connection.execute("SET synchronous_commit = off")
        return self._connection

    async def _execute(
        self, connected: "psycopg.AsyncConnection[Any]", statements: Statements[Result]
    ) -> Result:
        is_prepared = settings.DATABASE_PREPARED_STATEMENTS
        try:
            step = next(statements)
            async with connected.cursor(binary=True) as cursor:
                while True:
                    await cursor.execute(*_raw(*step), prepare=is_prepared)
                    answer = cursor.pgresult
                    step = statements.send(await cursor.fetchall() if answer and answer.nfields else [])
        except StopIteration as end:
            result: Result = end.value
            return result


Item = TypeVar("Item")

LEAST_SHARED = 16
"""Idle connections do not split fewer items than this. A second statement would cost more than it saves."""


class LoopGroupCommit(Generic[Item, Result]):
    """Writes items in groups, one group at a time on each connection.

    Idle connections split the items that arrived at once. With a single group, all callers would be answered together
    and call again together, so the process and the database would take turns waiting for each other.

    `write` makes the statements of a group, which return a result for each item, in order. If the database is
    unreachable, all waiting items fail. After any other exception, each item of the group is retried alone.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Statements[Sequence[Result]]],
        *,
        connections: int,
        size: Callable[[Item], int],
        most: int,
    ) -> None:
        self._write, self._size, self._most = write, size, most
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._idle = [LoopConnection() for _ in range(connections)]
        self._writers: set[asyncio.Task[None]] = set()
        self._starting = 0
        """Writers that will take their first group in this round of the loop."""

    async def do(self, item: Item) -> Result:
        """Write an item and return its result after the commit. Raises the error of the item's own write."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._idle:
            self._starting += 1
            writer = asyncio.create_task(self._write_all(self._idle.pop()))
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        return await done

    async def close(self) -> None:
        """Finish running writes and close the connections."""
        await asyncio.gather(*self._writers)
        for idle in self._idle:
            await idle.close()

    async def _write_all(self, connection: LoopConnection) -> None:
        """Write groups until no item waits."""
        try:
            # Items that other tasks add in this round of the loop join the first group.
            await asyncio.sleep(0)
            self._starting -= 1
            while self._waiting:
                await self._write_group(connection, self._take())
        finally:
            self._idle.append(connection)

    def _take(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        """The next group: a share of the waiting items, at least one, up to `most` by size."""
        share = max(LEAST_SHARED, math.ceil(len(self._waiting) / (1 + self._starting)))
        group = [self._waiting.popleft()]
        size = self._size(group[0][0])
        while (
            self._waiting
            and len(group) < share
            and (size := size + self._size(self._waiting[0][0])) <= self._most
        ):
            group.append(self._waiting.popleft())
        return group

    async def _write_group(
        self, connection: LoopConnection, group: Sequence[tuple[Item, "asyncio.Future[Result]"]]
    ) -> None:
        try:
            async with asyncio.timeout(STATEMENT_SECONDS):
                results = await connection.run_each(self._write([item for item, _ in group]))
        except TimeoutError:
            # Only this group fails, because other connections may work.
            for _, done in group:
                _fail(done, OperationalError("The statement took too long."))
        except Exception as error:  # noqa: BLE001 - whoever waits for an item gets its error
            if concerns_all(error):
                # The waiting items were held up by this error too. Retrying each of them would take as long again.
                for _, done in (*group, *self._waiting):
                    _fail(done, error)
                self._waiting.clear()
                return
            if len(group) == 1:
                _fail(group[0][1], error)
                return
            for each in group:
                await self._write_group(connection, [each])
        else:
            for (_, done), result in zip(group, results, strict=True):
                if not done.done():
                    done.set_result(result)


def _fail(done: "asyncio.Future[Result]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
