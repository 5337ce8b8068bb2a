from django.db import migrations, models

from gateway.database import partitions


def add_index(apps, schema_editor):
    on = '(tenant_id, id) WHERE answers IS NOT NULL'
    partitions.build(schema_editor, table='webhook_deliveries', index='delivery_with_answers', on=on)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('webhooks', '0013_message_log'),
    ]

    operations = [
        migrations.AddField(
            model_name='delivery',
            name='answers',
            field=models.JSONField(null=True),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(add_index, migrations.RunPython.noop),
                migrations.RunSQL(migrations.RunSQL.noop, 'DROP INDEX IF EXISTS delivery_with_answers'),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name='delivery',
                    index=models.Index(condition=models.Q(('answers__isnull', False)), fields=['tenant_id', 'id'], name='delivery_with_answers'),
                ),
            ],
        ),
    ]
