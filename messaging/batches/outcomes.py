"""Outcomes of a batch's messages: the count of each status, and the errors of failed messages."""

from collections import Counter
from dataclasses import dataclass

from django.db import connection

from messaging.models import Batch
from webhooks.models import PRECEDENCE

# Uses the index `message_by_batch`. Reads the rows of at most 10,000 messages, in the partitions of a month or two. A
# message that was sent again by `retry` has a row for each time, and only its newest row counts.
_COUNTS = """
SELECT CASE {cases} END AS status, CASE WHEN failed_at IS NOT NULL THEN error_code END AS code, count(*)
FROM (
    SELECT DISTINCT ON (idx) * FROM messages
    WHERE batch_id = %(batch_id)s AND tenant_id = %(tenant_id)s AND environment = %(environment)s
      AND direction = 'outbound'
    ORDER BY idx, id DESC
) newest
GROUP BY 1, 2
""".format(  # noqa: S608 - only column names are formatted in
    cases=" ".join(f"WHEN {column} IS NOT NULL THEN '{status}'" for status, column in PRECEDENCE.items())
)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The counts of a batch. Each message counts once, under its current status."""

    statuses: dict[str, int]
    """Counts by status, from `accepted` to `failed`."""
    causes: list[tuple[int | None, int]]
    """WhatsApp's codes for the failed messages, the most frequent first. None stands for messages without a code."""

    @property
    def may_change(self) -> bool:
        """Whether WhatsApp may still report further statuses of accepted messages."""
        return bool(self.statuses["accepted"] or self.statuses["sent"])


def outcomes_of(batch: Batch) -> Outcomes:
    """The current outcomes of a batch."""
    statuses: dict[str, int] = dict.fromkeys(reversed(list(PRECEDENCE)), 0)
    causes: Counter[int | None] = Counter()
    with connection.cursor() as cursor:
        cursor.execute(
            _COUNTS,
            {"batch_id": batch.id, "tenant_id": batch.tenant_id, "environment": batch.environment},
        )
        for status, code, count in cursor.fetchall():
            if status is not None:
                statuses[status] += count
            if status == "failed":
                causes[code] += count
    return Outcomes(statuses, causes.most_common())
