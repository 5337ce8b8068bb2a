from django.db import migrations, models

from gateway.database import partitions


def add_index(apps, schema_editor):
    on = (
        "(endpoint_id, customer_key, event_id, id)"
        " WHERE status IN ('pending', 'failed') AND customer_key IS NOT NULL"
    )
    partitions.build(schema_editor, table='webhook_deliveries', index='delivery_in_order', on=on)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('webhooks', '0017_find_message_by_index'),
    ]

    operations = [
        migrations.AddField(
            model_name='endpoint',
            name='rate_per_second',
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='endpoint',
            name='paced_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='endpoint',
            name='ordered',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='delivery',
            name='customer_key',
            field=models.BigIntegerField(null=True),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(add_index, migrations.RunPython.noop),
                migrations.RunSQL(migrations.RunSQL.noop, 'DROP INDEX IF EXISTS delivery_in_order'),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name='delivery',
                    index=models.Index(condition=models.Q(('customer_key__isnull', False), ('status__in', ['pending', 'failed'])), fields=['endpoint_id', 'customer_key', 'event_id', 'id'], name='delivery_in_order'),
                ),
            ],
        ),
    ]
