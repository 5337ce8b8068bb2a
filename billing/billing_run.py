"""The billing run: every step that is due at a moment, in order. Called by beat and by `manage.py billing_run`.

Every step finds its due work and does it once. So a run may be repeated or interrupted, and two runs may overlap. Steps
are independent: a failed step is logged and counted, and the next step follows.
"""

from collections.abc import Callable
from datetime import datetime

import structlog

from billing import mails, restriction, usage
from billing.error_isolation import SomeFailed
from billing.invoices import issuing
from billing.payments import (
    attempts,
    bank_transfers,
    debits,
    mandates,
    provider_notices,
    refunds,
    settlements,
)

log = structlog.get_logger(__name__)

STEPS: dict[str, Callable[[datetime], int]] = {
    "trials_ended": usage.end_trials,
    "snapshots": usage.take_snapshots,
    "invoices": issuing.issue_due,
    "invoice_mails": mails.send_invoices,
    "credit_note_mails": mails.send_credit_notes,
    "notices": provider_notices.apply_waiting,
    "looked_up": attempts.reconcile,
    "refunds": refunds.reconcile,
    "deductions": bank_transfers.follow_declarations,
    "debits": debits.charge_due,
    "settlements": settlements.reconcile,
    "mandates": mandates.reconcile,
    "overdue": restriction.mark_overdue,
    "reminders": mails.send_reminders,
    "receipts": mails.send_receipts,
    "early_warnings": mails.send_early_warnings,
}


def run(at: datetime) -> dict[str, int]:
    """Run every step for the moment `at`. Returns the number of items that each step handled, and the number of steps
    with errors (`failed`).
    """
    report: dict[str, int] = {}
    failed = 0
    for name, step in STEPS.items():
        try:
            report[name] = step(at)
        except SomeFailed as trouble:
            report[name] = trouble.done
            failed += 1
        except Exception:
            report[name] = 0
            failed += 1
            log.exception("billing_step_failed", step=name)
    return {**report, "failed": failed}
