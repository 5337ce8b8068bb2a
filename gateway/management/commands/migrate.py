"""`manage.py migrate`: Django's command, which can wait for a starting database, but not for locks, with rare garbage
collection.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from psycopg import Connection
from psycopg.pq import TransactionStatus

LOOK_SECONDS = 0.5
LOCK_WAIT = "5s"


class Command(migrate.Command):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--wait",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="how many seconds to wait for the database to answer before migrating",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Migrate once the database answers. Raises CommandError if the database does not answer in time."""
        if options["wait"]:
            _wait(options["database"], seconds=options["wait"])
        connection = connections[options["database"]]
        with connection.execute_wrapper(_limit_locks), _rare_garbage_collection():
            return super().execute(*args, **options)


def _limit_locks(
    execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Give each transaction a limit on waiting for locks.

    If a statement has to wait, for example for a dump, all traffic of the table waits behind it. A migration that is
    not a single transaction sets its own limit, because an index that is built concurrently waits for transactions.
    """
    connected: Connection[Any] = context["cursor"].cursor.connection
    if not connected.autocommit and connected.info.transaction_status == TransactionStatus.IDLE:
        connected.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
    return execute(statement, params, many, context)


@contextlib.contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely. Migrations render their models thousands of times, and each collection scans them all.

    This saves a fifth of the CPU time on an empty database, and costs 15 MB.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _wait(database: str, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            connections[database].ensure_connection()
            return
        except OperationalError as error:
            if time.monotonic() > deadline:
                raise CommandError(
                    f"The database did not answer within {seconds:g} seconds: {error}"
                ) from error
        time.sleep(LOOK_SECONDS)
