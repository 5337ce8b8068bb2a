from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic.
    atomic = False

    dependencies = [
        ("webhooks", "0029_endpoint_credentials"),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        *(
            migrations.AddField(
                model_name="endpoint",
                name=name,
                field=models.PositiveSmallIntegerField(blank=True, null=True),
            )
            for name in ("batch_events", "batch_milliseconds", "quiet_seconds")
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
