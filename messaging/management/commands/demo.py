"""`manage.py demo`: create demo data on a running development service, and `ready.json`."""

from typing import Any

import requests
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging import demo


class Command(BaseCommand):
    help = "Create the demo data in a running development service, and write ready.json into DATA_DIR."

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.PRODUCTION:
            raise CommandError("The demo data is for development.")
        try:
            demo.make(settings.DATA_DIR / "ready.json")
        except (demo.DemoError, requests.RequestException) as error:
            raise CommandError(str(error)) from None
