from django.db import migrations

from webhooks import stream


def add_index(apps, schema_editor):
    stream.build_index(schema_editor)


class Migration(migrations.Migration):
    # The column and its default are catalogue changes alone; the index is built beside the traffic.
    atomic = False

    dependencies = [
        ("webhooks", "0018_endpoint_rate_and_order"),
    ]

    operations = [
        # Behind a long query they give up rather than hold up all traffic.
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.RunSQL(stream.ADD_COLUMN, stream.DROP_COLUMN),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
        migrations.RunPython(add_index, migrations.RunPython.noop),
    ]
