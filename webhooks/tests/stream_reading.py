"""A client of the event stream that continues from its place, even if its events move to another database."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection

from gateway import ids
from gateway.database.statements import run
from tests.database_settings import connected_with
from webhooks import stream


@contextmanager
def connected_to(url: str) -> Iterator[None]:
    """Connect Django to another database within the block."""
    parameters = psycopg.conninfo.conninfo_to_dict(url)
    with connected_with(NAME=parameters["dbname"], HOST=parameters.get("host", "")):
        yield


class StreamReader:
    """A client that stores only its last place, and the ids of the events that it got."""

    def __init__(self, tenant_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.place = str(stream.BEGINNING)
        self.got: list[str] = []

    def read_on(self) -> None:
        """Read all events after the client's place."""
        if settings.DATABASE_IS_DISTRIBUTED:
            with connection.cursor() as cursor:
                # Citus itself does this at intervals.
                cursor.execute("SELECT recover_prepared_transactions()")
        after = run(stream.resumed(self.place, tenant_id=self.tenant_id, environment="live"))
        while True:
            assert after is not None
            (page,) = run(stream.look([stream.Wanted(self.tenant_id, "live", after)])).pages
            if not page:
                return
            for found in page:
                self.got.append(ids.encode(ids.EVENT, found.position.event_id))
            after = page[-1].position
            self.place = str(after)
