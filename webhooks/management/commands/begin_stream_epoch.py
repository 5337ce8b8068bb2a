"""`manage.py begin_stream_epoch`: lets event streams continue after a restore."""

from typing import Any

from django.core.management.base import BaseCommand

from webhooks import stream


class Command(BaseCommand):
    help = (
        "After a restore, or a fail-over that lost commits: begin a new epoch of the event stream, so that listeners "
        "go on from their places and get what comes from now on."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        stream.begin_epoch()
