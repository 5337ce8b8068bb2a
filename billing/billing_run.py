"""The billing run: every step that is due at a moment, in order. Called by beat and by `manage.py billing_run`.

Every step looks for what is due at a moment and does it once; running it again, later, or twice at once changes
nothing more. Trouble with the provider leaves an attempt waiting, never a step undone.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from billing import reminders, restriction, snapshots
from billing.invoices import issuing
from billing.payments import charging, mandates, notices


@dataclass(frozen=True, slots=True)
class Report:
    """How much each step did."""

    trials_ended: int
    snapshots: int
    invoices: int
    notices: int
    looked_up: int
    debits: int
    overdue: int
    reminders: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def run(at: datetime) -> Report:
    """Do everything that is due at `at`."""
    trials_ended = snapshots.end_trials(at)
    taken = snapshots.take(at)
    issued = issuing.issue_due(at)
    applied = notices.apply_waiting(at)
    mandates.reconcile(at)
    looked_up = charging.reconcile(at)
    debits = charging.charge_due(at)
    overdue = restriction.mark_overdue(at)
    return Report(trials_ended, taken, issued, applied, looked_up, debits, overdue, reminders.send_due(at))
