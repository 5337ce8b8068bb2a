"""A client of the event stream that continues from its place, even if its events move to another database."""

from uuid import UUID

from django.conf import settings
from django.db import connection

from gateway import ids
from gateway.database.statements import run
from webhooks import stream


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
