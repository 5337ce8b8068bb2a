"""`manage.py forget_stream_positions`: clear the positions of the event stream after a restore."""

from typing import Any

from django.core.management.base import BaseCommand

from webhooks import stream


class Command(BaseCommand):
    help = (
        "After a restore: forget the events' places in the event stream, which numbered other transactions."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        stream.clear_positions()
