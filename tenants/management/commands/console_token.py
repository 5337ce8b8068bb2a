"""`manage.py console_token`: create a console session for a staff member."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tenants.credentials import bearer_tokens
from tenants.models import User


class Command(BaseCommand):
    help = "Open a console session of a staff member for 12 hours, and print its token."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=options["email"].lower(), is_staff=True, is_active=True).first()
        if user is None:
            raise CommandError("There is no active staff member with this e-mail address.")
        self.stdout.write(bearer_tokens.open_session(user).token)
