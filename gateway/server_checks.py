"""Checks of the servers themselves: Postgres's version; whether Valkey answers, its version, and that it never evicts.

`manage.py migrate` and `manage.py check --database default` run them. Each web process and each worker runs them once
more at its start and logs what it finds: it starts all the same, because a server may have been mended meanwhile, and
without Valkey the service goes on.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import structlog
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import Error as DatabaseError
from django.db import connections

from gateway.valkey.connection import VALKEY_UNAVAILABLE, valkey

log = structlog.get_logger(__name__)

OLDEST_POSTGRES = 15
OLDEST_VALKEY = (7, 0)
"""As the INFO field `redis_version`, which Valkey 7.2 and 8 keep at 7.2.4."""


@register(Tags.database)
def check_servers(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """What is wrong with the servers of this environment."""
    if not databases:
        return []
    return [*_of_postgres(databases), *_of_valkey()]


def _of_postgres(aliases: Iterable[str]) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for alias in aliases:
        with connections[alias].cursor() as cursor:
            cursor.execute("SHOW server_version_num")
            version = int(cursor.fetchone()[0]) // 10_000
        if version < OLDEST_POSTGRES:
            text = f"Postgres {version} is too old: {OLDEST_POSTGRES} or newer is needed."
            found.append(Error(text, id="gateway.E030"))
    return found


def _of_valkey() -> list[CheckMessage]:
    try:
        facts = valkey().info()
    except VALKEY_UNAVAILABLE:
        text = "Valkey does not answer at REDIS_URL: nothing is lost, but everything waits longer."
        return [checks.Warning(text, id="gateway.W031")]
    found: list[CheckMessage] = []
    version = tuple(int(part) for part in str(facts["redis_version"]).split(".")[:2])
    if version < OLDEST_VALKEY:
        text = f"Redis {facts['redis_version']} is too old: Valkey 7.2 or Redis 7 is needed."
        found.append(Error(text, id="gateway.E032"))
    policy = facts["maxmemory_policy"]
    if policy != "noeviction":
        text = f"Valkey's maxmemory-policy is {policy}: tasks and limits would vanish. Set noeviction."
        found.append(Error(text, id="gateway.E033"))
    return found


def report_at_start() -> None:
    """Log the findings, from a thread of its own: a server that hangs must not hold up the start."""
    threading.Thread(target=_report, name="server-checks", daemon=True).start()


def _report() -> None:
    try:
        for finding in check_servers(databases=list(settings.DATABASES)):
            log.error("server_unfit", id=finding.id, finding=finding.msg)
    except DatabaseError as error:
        log.warning("server_checks_missed", error=type(error).__name__)
    finally:
        connections.close_all()
