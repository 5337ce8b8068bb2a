"""`manage.py rotate_encryption`: re-encrypt every stored secret under the first of ENCRYPTION_KEYS."""

from typing import Any

from django.core.management.base import BaseCommand

from gateway import encryption


class Command(BaseCommand):
    help = "Encrypt every stored token, PIN and secret anew under the first of ENCRYPTION_KEYS."

    def handle(self, *args: Any, **options: Any) -> None:
        count = encryption.rotate_all()
        self.stdout.write(f"{count} secrets encrypted anew. The older keys can go once this says 0.")
