from uuid import UUID

from django.db import migrations, models

from gateway.database import partitions

BATCH_ROWS = 5_000

# Updates the rows of a tenant by index. Each batch of rows is a transaction, so no row is locked for long.
NEXT = """
WITH batch AS (SELECT id FROM {table} WHERE tenant_id = %s AND id > %s ORDER BY id LIMIT %s),
     moved AS (UPDATE {table} SET environment = 'test' WHERE id IN (SELECT id FROM batch) AND environment <> 'test')
SELECT id FROM batch ORDER BY id DESC LIMIT 1
"""


def mark_sandboxes(apps, schema_editor):
    """Set the environment of all rows of sandbox tenants to `test`, because these tenants only use the simulator."""
    sandboxes = apps.get_model('tenants', 'Tenant').objects.filter(sandbox=True).values_list('id', flat=True)
    with schema_editor.connection.cursor() as cursor:
        for tenant_id in sandboxes:
            for table in ('webhooks_endpoint', 'events', 'webhook_deliveries'):
                after = UUID(int=0)
                while after is not None:
                    cursor.execute(NEXT.format(table=table), [tenant_id, after, BATCH_ROWS])
                    row = cursor.fetchone()
                    after = row[0] if row else None


def add_indexes(apps, schema_editor):
    for table, index in (('events', 'event_of_test'), ('webhook_deliveries', 'delivery_of_test')):
        on = "(tenant_id, id DESC) WHERE environment = 'test'"
        partitions.build(schema_editor, table=table, index=index, on=on)


def drop_indexes(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute('DROP INDEX IF EXISTS event_of_test, delivery_of_test')


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('tenants', '0001_initial'),
        ('webhooks', '0007_environment'),
    ]

    operations = [
        migrations.RunPython(mark_sandboxes, migrations.RunPython.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(add_indexes, drop_indexes)],
            state_operations=[
                migrations.AddIndex(
                    model_name='event',
                    index=models.Index(condition=models.Q(('environment', 'test')), fields=['tenant_id', '-id'], name='event_of_test'),
                ),
                migrations.AddIndex(
                    model_name='delivery',
                    index=models.Index(condition=models.Q(('environment', 'test')), fields=['tenant_id', '-id'], name='delivery_of_test'),
                ),
            ],
        ),
    ]
