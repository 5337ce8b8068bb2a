"""Outages: which database errors end a loop over rows, and which affect only one row."""

import threading
from collections.abc import Iterator

import pytest
from django.db import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)
from psycopg import errors
from psycopg_pool import PoolTimeout
from structlog.testing import capture_logs

from billing.error_isolation import SomeFailed, each
from gateway.api.errors import ServiceUnavailable, as_service_error
from gateway.database.transactions import concerns_all, is_lock_limit, is_outage

pytestmark = pytest.mark.django_db(transaction=True)

ROW_TROUBLE = {
    "a limit of Postgres": "SELECT repeat('x', 2000000000)",
    "a time-out": "SET LOCAL statement_timeout = 1; SELECT pg_sleep(10)",
    "a lock that is not free": "SELECT 1 FROM tenants_tenant FOR UPDATE NOWAIT",
    "a value that is refused": "SELECT 1 / 0",
}


@pytest.fixture
def locked_tenant(tenant: object) -> Iterator[None]:
    """A tenant whose row another connection has locked."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM tenants_tenant FOR UPDATE")
            held.set()
            over.wait(20)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    yield
    over.set()
    holder.join(10)


def run(statement: str) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return True


@pytest.mark.parametrize("trouble", ROW_TROUBLE)
def test_the_trouble_of_one_row_stops_no_other(locked_tenant: None, trouble: str) -> None:
    done = []

    def act(statement: str) -> bool:
        done.append(run(statement))
        return True

    with pytest.raises(SomeFailed) as failed:
        each(["SELECT 1", ROW_TROUBLE[trouble], "SELECT 2"], act, step="test")
    assert (failed.value.done, len(done)) == (2, 2)


@pytest.mark.parametrize(
    "statements",
    [
        "SET TRANSACTION READ ONLY; DELETE FROM tenants_tenant",
        "SET LOCAL search_path = ''; SELECT 1 FROM tenants_tenant",
        "SET LOCAL ROLE pg_monitor; SELECT 1 FROM tenants_tenant",
    ],
    ids=["takes no writes", "shows no tables", "gives no rights"],
)
def test_a_database_that_serves_no_statement_is_away(statements: str) -> None:
    with pytest.raises(Error) as refused:
        run(statements)
    assert is_outage(refused.value)
    assert concerns_all(refused.value)


def test_a_connection_that_ends_ends_the_loop() -> None:
    with pytest.raises(Error) as ended:
        each(["SELECT pg_terminate_backend(pg_backend_pid())", "SELECT 1"], run, step="test")
    assert is_outage(ended.value)
    assert concerns_all(ended.value)
    connection.close()
    assert run("SELECT 1")


def test_the_log_names_the_cause_of_a_503_without_the_values_of_rows() -> None:
    """Citus raises one class of errors for many different reasons, so the log needs more than the class."""
    with pytest.raises(OperationalError, match="lock") as refused:
        run("DO $$ BEGIN RAISE 'lock of +919800000001' USING ERRCODE = '55P03'; END $$")
    with capture_logs() as logs:
        assert isinstance(as_service_error(refused.value), ServiceUnavailable)
    assert logs == [
        {
            "event": "database_unreachable",
            "log_level": "warning",
            "error": "LockNotAvailable",
            "sqlstate": "55P03",
            "raised_by": "exec_stmt_raise",
        }
    ]


def test_the_log_names_an_outage_that_no_server_reported() -> None:
    with capture_logs() as logs:
        assert isinstance(as_service_error(OperationalError("No route to +919800000001")), ServiceUnavailable)
    assert logs == [{"event": "database_unreachable", "log_level": "warning", "error": "OperationalError"}]


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """An error of Django with the driver's error as its cause."""
    error.__cause__ = cause
    return error


OF_EACH_KIND = [
    (raised(OperationalError(), errors.ConnectionFailure()), True, True, False),
    (raised(OperationalError()), True, True, False),
    (raised(InterfaceError()), True, True, False),
    (PoolTimeout(), True, True, False),
    *(
        (raised(OperationalError(), cause()), True, False, False)
        for cause in (
            errors.ProgramLimitExceeded,
            errors.StatementTooComplex,
            errors.DeadlockDetected,
            errors.QueryCanceled,
        )
    ),
    (raised(OperationalError(), errors.LockNotAvailable()), True, False, True),
    (raised(OperationalError(), errors.DiskFull()), True, True, False),
    (raised(InternalError(), errors.ReadOnlySqlTransaction()), True, True, False),
    (raised(ProgrammingError(), errors.UndefinedTable()), True, True, False),
    (raised(ProgrammingError(), errors.InsufficientPrivilege()), True, True, False),
    (raised(ProgrammingError(), errors.UndefinedColumn()), False, False, False),
    (raised(IntegrityError(), errors.UniqueViolation()), False, False, False),
    (raised(DataError(), errors.NumericValueOutOfRange()), False, False, False),
    (ValueError(), False, False, False),
]
"""Errors, and whether the database is away, whether a loop over rows ends, and whether a lock was not free."""


def test_an_error_is_of_the_database_of_one_statement_or_of_one_row() -> None:
    for error, *expected in OF_EACH_KIND:
        found = [is_outage(error), concerns_all(error), is_lock_limit(error)]
        assert found == expected, (error, error.__cause__)
