from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic.
    atomic = False

    dependencies = [
        ("webhooks", "0022_event_traceparent"),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="endpoint",
            name="circuit_generation",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
