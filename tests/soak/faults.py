"""The fault table of a soak. Each fault lasts a few seconds while events and messages are under way."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from random import Random

import psycopg
import redis

from gateway import embedded_addresses
from tests.soak.ledger import TENANTS, Ledger, Receiving, Upstream
from tests.soak.stack import Stack

AWAY_SECONDS = (1.0, 6.0)
FROZEN_SECONDS = (1.0, 6.0)
"""Sometimes longer than the leases of a soak. Another worker then takes the leased work before the frozen one
continues.
"""
BEHAVES_SECONDS = (2.0, 5.0)


@dataclass(frozen=True)
class Fault:
    """One row of the table. `happen` returns when it is over."""

    name: str
    happen: Callable[[Stack, Ledger, Random], None]


def _killed(kind: str) -> Fault:
    def happen(stack: Stack, _: Ledger, chance: Random) -> None:
        stack.kill(chance.choice(stack.named(kind)))
        stack.pause(1.0)

    return Fault(f"kill -9 of {kind}", happen)


def _frozen(kind: str) -> Fault:
    def happen(stack: Stack, _: Ledger, chance: Random) -> None:
        stack.freeze(chance.choice(stack.named(kind)), chance.uniform(*FROZEN_SECONDS))

    return Fault(f"{kind} frozen", happen)


def _away(name: str) -> Fault:
    def happen(stack: Stack, _: Ledger, chance: Random) -> None:
        stack.take_away(name, chance.uniform(*AWAY_SECONDS))

    return Fault(f"{name} stopped", happen)


def _postgres_killed(stack: Stack, _: Ledger, __: Random) -> None:
    stack.kill("postgres")
    stack.pause(2.0)


def _connections_cut(stack: Stack, _: Ledger, __: Random) -> None:
    with psycopg.connect(embedded_addresses.database_url(stack.data_dir), autocommit=True) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    stack.pause(1.0)


def _valkey_flushed(stack: Stack, _: Ledger, __: Random) -> None:
    with closing(redis.Redis.from_url(embedded_addresses.valkey_url(stack.data_dir))) as client:
        client.flushall()
    stack.pause(1.0)


def _receiver(behaviour: Receiving) -> Fault:
    def happen(stack: Stack, ledger: Ledger, chance: Random) -> None:
        tenant = chance.randrange(TENANTS)
        ledger.receiving[tenant] = behaviour
        stack.pause(chance.uniform(*BEHAVES_SECONDS))
        ledger.receiving[tenant] = Receiving.WELL

    return Fault(f"receiver {_words(behaviour.name)}", happen)


def _upstream(behaviour: Upstream) -> Fault:
    def happen(stack: Stack, ledger: Ledger, chance: Random) -> None:
        ledger.upstream = behaviour
        stack.pause(chance.uniform(*BEHAVES_SECONDS))
        ledger.upstream = Upstream.WELL

    return Fault(f"upstream {_words(behaviour.name)}", happen)


def _words(name: str) -> str:
    return name.lower().replace("_", " ").replace("html", "HTML").replace("100 mb", "100 MB")


FAULTS = (
    *(_killed(kind) for kind in ("web", "host", "deliveries", "batches", "tasks", "beat")),
    *(_frozen(kind) for kind in ("web", "host", "deliveries", "batches")),
    *(_away(name) for name in ("postgres", "valkey")),
    Fault("kill -9 of postgres", _postgres_killed),
    Fault("database connections cut", _connections_cut),
    Fault("valkey flushed", _valkey_flushed),
    *(_receiver(behaviour) for behaviour in Receiving if behaviour is not Receiving.WELL),
    *(_upstream(behaviour) for behaviour in Upstream if behaviour is not Upstream.WELL),
)


def plan(count: int, chance: Random) -> list[Fault]:
    """`count` faults, in rounds through the table. Each round has a random order."""
    planned: list[Fault] = []
    while len(planned) < count:
        planned += chance.sample(FAULTS, len(FAULTS))
    return planned[:count]
