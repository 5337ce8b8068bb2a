"""`manage.py create_app`: create a platform app."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tenants import platform_apps


class Command(BaseCommand):
    help = "Create a platform app and print its id."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(str(platform_apps.create_app(name=options["name"]).id))
