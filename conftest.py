"""Start a Postgres and a Valkey for the tests, and set up Django to use them.

The servers must start before Django reads its settings. pytest imports this file before any other conftest and before
any app, so this file starts the servers and then names the settings module. pytest's configuration must not name it.
The servers keep their files in a temporary directory (`gateway/local_run/embedded_servers.py`). If the caller sets
`DATABASE_URL` or `REDIS_URL`, the tests use that server instead, such as a managed server in CI. Every test begins with
an empty Valkey.
"""

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import django
import hypothesis
import pytest
import redis
from django.conf import settings
from django.db import connections

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from gateway.local_run.process_group import ProcessGroup
from gateway.valkey import connection as valkey_connection
from tests import migrated_cluster

# Collecting the tests creates half a million long-lived objects. Garbage collection would only slow it down.
gc.set_threshold(10_000_000, 50, 100)


def start_servers() -> None:
    """Start the servers whose URL the caller did not set. They end with this process, even if it is killed."""
    data_dir = Path(tempfile.mkdtemp(prefix="gateway-tests-"))
    os.environ["DATA_DIR"] = str(data_dir)
    atexit.register(shutil.rmtree, data_dir, ignore_errors=True)
    atexit.register(shutil.rmtree, embedded_addresses.socket_dir(data_dir), ignore_errors=True)
    group = ProcessGroup()
    atexit.register(group.close)
    if "DATABASE_URL" not in os.environ:
        migrated_cluster.copy_to(data_dir)
        postgres = embedded_servers.start_postgres(data_dir, process_group=group.id, durable=False)
        atexit.register(embedded_servers.stop_postgres, postgres)
        os.environ["DATABASE_URL"] = embedded_addresses.database_url(data_dir)
    if "REDIS_URL" not in os.environ:
        valkey = embedded_servers.start_valkey(data_dir, process_group=group.id)
        atexit.register(embedded_servers.stop_valkey, valkey)
        os.environ["REDIS_URL"] = embedded_addresses.valkey_url(data_dir)


_CALLERS = {name: os.environ.get(name) for name in ("DATABASE_URL", "REDIS_URL")}
if settings.configured:
    raise pytest.UsageError("Run the tests without DJANGO_SETTINGS_MODULE and --ds: conftest.py sets them.")
start_servers()
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway.settings"
_STARTED_HERE = ["DJANGO_SETTINGS_MODULE", *(name for name, value in _CALLERS.items() if value is None)]
django.setup()
if "DATABASE_URL" in _STARTED_HERE:
    # Django creates the test database as a copy of the migrated database.
    connections["default"].settings_dict["TEST"]["TEMPLATE"] = embedded_addresses.DATABASE

# Tests and threads of the listener borrow their connections as in a web process. A new connection would first read the
# catalogue of all partitions.
_database = connections["default"].settings_dict
_database["CONN_MAX_AGE"] = 0
_database["OPTIONS"]["pool"] = {"min_size": 0, "max_size": 100, "timeout": 10}

# A busy machine must not turn off the rate limit.
valkey_connection.QUICK_SECONDS = 5.0

# A slow machine must not fail a property test.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")

pytest_plugins = [
    *("tests.watched", "tests.owned_rows", "tests.locked_rows", "tests.local_settings", "tests.private_logs"),
    *("tests.fixtures", "tests.browsers", "tests.receiver", "tests.collector", "tests.simulated"),
]


LONG_FILES = (
    "tests/e2e/",
    "tests/staff/test_accessibility.py",
    "console/tests/test_accessibility.py",
    "billing/tests/test_year.py",
    "tests/faults/test_sending.py",
    "tests/faults/test_hosts.py",
    "tests/api_contract/test_authorisation.py",
    "tests/api_contract/test_security_headers.py",
    "tests/staff/test_dialogs.py",
    "tests/faults/",
    "tests/operating/",
)
"""The files and folders with the longest tests, longest first."""


def pytest_collection(session: pytest.Session) -> None:
    """Import the test files in a different order in each process of a parallel run of all tests.

    The first import of a file rewrites its assertions, and the other processes then read the result. In the same order,
    all processes would rewrite each file at the same time.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(file for path in session.config.args for file in Path(path).rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        # The collection imports a file that fails again, and reports its error.
        with suppress(Exception):
            import_module(".".join(file.with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long files first, so that the short ones fill the gaps at the end."""

    def place(item: pytest.Item) -> int:
        found = (place for place, start in enumerate(LONG_FILES) if item.nodeid.startswith(start))
        return next(found, len(LONG_FILES))

    items.sort(key=place)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze the collected tests, which live to the end, so that the garbage collector never scans them."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use three more processes than there are cores, because tests spend half of their time waiting."""
    return len(os.sched_getaffinity(0)) + 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return our scheduler for `--dist loadfile`."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.scheduling import Scheduling

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Clear the addresses of this process's servers, because each process of a parallel run starts its own servers."""
    for name in _STARTED_HERE:
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Set up the migrated database.

    Tests that commit delete their rows afterwards. The listener closes its connections before the database is dropped.
    """
    from tests import database_settings, emptying
    from tests.front import install, running

    with django_db_blocker.unblock():
        emptying.delete_instead_of_truncating()
    install()
    yield
    running.close()
    emptying.close()
    database_settings.close_pools()


@pytest.fixture(scope="session")
def _valkey_client() -> Iterator[redis.Redis]:
    """Connect to the tests' Valkey. Its database must be empty, because the tests clear it."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    if client.dbsize():
        pytest.exit(
            "The tests empty the database of REDIS_URL: it has keys in it, name an empty one.", returncode=4
        )
    yield client
    client.flushdb()
    client.close()


@pytest.fixture(autouse=True)
def empty_valkey(_valkey_client: redis.Redis) -> redis.Redis:
    """Empty the tests' Valkey, and reset what this process has cached from it. Returns a client."""
    from gateway.monitoring import metrics
    from webhooks import wake_up

    metrics.flush()
    _valkey_client.flushdb()
    wake_up.reset()
    return _valkey_client
