"""Complete data from before the first release: require that all invoices are posted, and copy transfers' references."""

from typing import Any

from django.db import migrations

REFERENCES = """
INSERT INTO billing_banktransfer (attempt_id, tenant_id, reference)
SELECT attempt.id, invoice.tenant_id, upper(attempt.provider_payment_id)
FROM billing_paymentattempt attempt JOIN billing_invoice invoice ON invoice.id = attempt.invoice_id
WHERE attempt.kind = 'manual' AND attempt.provider_payment_id <> ''
ON CONFLICT DO NOTHING
"""


def require_booked(apps: Any, schema_editor: Any) -> None:
    invoices = apps.get_model("billing", "Invoice").objects.filter(postings=None)
    if invoices.exists():
        raise RuntimeError("Some invoices are older than the ledger: run manage.py billing_run of release 1.0.0 first.")


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_closed_months_and_staff_acts")]
    operations = [
        migrations.RunPython(require_booked, migrations.RunPython.noop),
        migrations.RunSQL(REFERENCES, migrations.RunSQL.noop),
        # Only the model is removed, because processes of the previous version still read the table. The next release
        # drops the table.
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name="BalanceTransfer")]),
        *(
            migrations.AlterModelOptions(name=name, options={"ordering": ["id"]})
            for name in ("creditnote", "creditnoteline", "invoiceline")
        ),
    ]
