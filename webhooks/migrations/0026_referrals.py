from django.db import migrations, models

from gateway.database import partitions

INDEX = 'message_by_referral'
COLUMNS = {'referral_source_type': 20, 'referral_source_id': 255, 'referral_ctwa_clid': 512}


def add_index(apps, schema_editor):
    on = '(tenant_id, referral_source_id, id DESC) WHERE referral_source_id IS NOT NULL'
    partitions.build(schema_editor, table='messages', index=INDEX, on=on)


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic. The index is built concurrently.
    atomic = False

    dependencies = [
        ('webhooks', '0025_endpoint_kind'),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        *(
            migrations.AddField(
                model_name='message', name=name, field=models.CharField(max_length=length, null=True)
            )
            for name, length in COLUMNS.items()
        ),
        migrations.RunSQL('RESET lock_timeout', migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(add_index, migrations.RunPython.noop),
                migrations.RunSQL(migrations.RunSQL.noop, f'DROP INDEX IF EXISTS {INDEX}'),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name='message',
                    index=models.Index(
                        condition=models.Q(('referral_source_id__isnull', False)),
                        fields=['tenant_id', 'referral_source_id', '-id'],
                        name=INDEX,
                    ),
                )
            ],
        ),
    ]
