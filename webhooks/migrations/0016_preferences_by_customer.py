from django.db import migrations, models

from gateway.database import partitions

INDEXES = {'event_preference_by_customer': 'wa_id', 'event_preference_by_user': 'user_id'}


def add_indexes(apps, schema_editor):
    for name, column in INDEXES.items():
        on = f"(tenant_id, {column}, id DESC) WHERE type = 'user.preferences'"
        partitions.build(schema_editor, table='events', index=name, on=on)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('webhooks', '0015_endpoint_notices'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(add_indexes, migrations.RunPython.noop),
                *(migrations.RunSQL(migrations.RunSQL.noop, f'DROP INDEX IF EXISTS {name}') for name in INDEXES),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name='event',
                    index=models.Index(condition=models.Q(('type', 'user.preferences')), fields=['tenant_id', column, '-id'], name=name),
                )
                for name, column in INDEXES.items()
            ],
        ),
    ]
