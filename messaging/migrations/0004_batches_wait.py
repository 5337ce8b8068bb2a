"""Add columns to batches: the reason for a wait, its beginning, and the number of retries. Make client_ref unique for
each tenant.

The indexes are built concurrently, so no lock is held for long. If a tenant used a client_ref in both environments,
only the live batch keeps it.
"""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

_FREE_REPEATED_REFS = """
UPDATE messaging_batch t SET client_ref = NULL
FROM messaging_batch l
WHERE t.environment = 'test' AND l.environment = 'live'
  AND l.tenant_id = t.tenant_id AND l.client_ref = t.client_ref
"""


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("messaging", "0003_batches")]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="waiting_for",
            field=models.CharField(
                choices=[
                    ("number_not_connected", "Number Not Connected"),
                    ("number_released", "Number Released"),
                    ("tenant_suspended", "Tenant Suspended"),
                ],
                max_length=32,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="batch", name="waiting_since", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="batch",
            name="retries",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        AddIndexConcurrently(
            model_name="batch",
            index=models.Index(fields=["tenant", "environment", "-id"], name="batch_by_tenant"),
        ),
        migrations.RunSQL(_FREE_REPEATED_REFS, migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'CREATE UNIQUE INDEX CONCURRENTLY "batch_client_ref_once_per_tenant" '
                    "ON messaging_batch (tenant_id, client_ref)",
                    'DROP INDEX IF EXISTS "batch_client_ref_once_per_tenant"',
                ),
                migrations.RunSQL(
                    'ALTER TABLE messaging_batch ADD CONSTRAINT "batch_client_ref_once_per_tenant" '
                    'UNIQUE USING INDEX "batch_client_ref_once_per_tenant"',
                    'ALTER TABLE messaging_batch DROP CONSTRAINT "batch_client_ref_once_per_tenant"',
                ),
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="batch",
                    constraint=models.UniqueConstraint(
                        fields=("tenant", "client_ref"), name="batch_client_ref_once_per_tenant"
                    ),
                ),
            ],
        ),
        migrations.RemoveConstraint(model_name="batch", name="batch_once_per_client_ref"),
    ]
