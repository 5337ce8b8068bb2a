from django.db import migrations, models

from gateway.database import partitions


def add_index(apps, schema_editor):
    on = '(tenant_id, user_id, id DESC) WHERE user_id IS NOT NULL'
    partitions.build(schema_editor, table='events', index='event_by_user', on=on)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('webhooks', '0008_environment_of_sandboxes'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(add_index, migrations.RunPython.noop),
                migrations.RunSQL(migrations.RunSQL.noop, 'DROP INDEX IF EXISTS event_by_user'),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name='event',
                    index=models.Index(condition=models.Q(('user_id__isnull', False)), fields=['tenant_id', 'user_id', '-id'], name='event_by_user'),
                ),
            ],
        ),
    ]
