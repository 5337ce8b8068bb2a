from django.db import migrations

from webhooks import stream


def add_index(apps, schema_editor):
    stream.build_index(schema_editor)


class Migration(migrations.Migration):
    # The column and its default change only the system catalogue. The index is built concurrently.
    atomic = False

    dependencies = [
        ("webhooks", "0018_endpoint_rate_and_order"),
    ]

    operations = [
        # If it has to wait for a long query, the statement fails after 5 seconds instead of blocking all traffic.
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.RunSQL(stream.ADD_COLUMN, stream.DROP_COLUMN),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
        migrations.RunPython(add_index, migrations.RunPython.noop),
    ]
