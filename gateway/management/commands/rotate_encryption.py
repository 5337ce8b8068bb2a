"""`manage.py rotate_encryption`: re-encrypts every stored secret with the first of ENCRYPTION_KEYS."""

from typing import Any

from django.core.management.base import BaseCommand

from gateway import encryption


class Command(BaseCommand):
    help = "Re-encrypt every stored token, PIN and secret with the first of ENCRYPTION_KEYS."

    def handle(self, *args: Any, **options: Any) -> None:
        count = encryption.rotate_all()
        self.stdout.write(f"{count} secrets re-encrypted. The older keys can be removed once this says 0.")
