"""`manage.py begin_stream_epoch`: lets event streams continue after a restore."""

from typing import Any

from django.core.management.base import BaseCommand

from webhooks import stream


class Command(BaseCommand):
    help = (
        "Begin a new epoch of the event stream, so that listeners continue from their places with new events. Run "
        "this after a restore, or after a fail-over that lost commits."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        stream.begin_epoch()
