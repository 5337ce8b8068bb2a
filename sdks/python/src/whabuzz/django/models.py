"""The table of handled events. A repeated delivery of an event in the table is not handled again."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.utils import timezone

KEPT = timedelta(days=365)
"""How long dedupe keys are kept. The gateway can replay an event for as long as it retains the event's body, up to 365
days.
"""


class SeenEvent(models.Model):
    """The `dedupe_key` of an event that was handled."""

    dedupe_key = models.CharField(max_length=255, primary_key=True)
    seen_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects: ClassVar[models.Manager[SeenEvent]] = models.Manager()

    class Meta:
        app_label = "whabuzz"

    def __str__(self) -> str:
        return self.dedupe_key

    @classmethod
    def prune(cls, older_than: timedelta = KEPT) -> int:
        """Delete keys older than `older_than`. Returns how many. Call it daily."""
        return cls.objects.filter(seen_at__lt=timezone.now() - older_than).delete()[0]
