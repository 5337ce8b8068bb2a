from django.db import migrations

from webhooks import stream


class Migration(migrations.Migration):
    dependencies = [
        ("webhooks", "0031_destinations"),
    ]

    operations = [
        # If it has to wait for a long query, the statement fails after 5 seconds instead of blocking all traffic.
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.RunSQL(stream.ADD_EPOCH, stream.REMOVE_EPOCH),
    ]
