from django.db import migrations, models


class Migration(migrations.Migration):
    # A catalogue change alone: no row is written. The default is for rows of the former version, which makes webhooks
    # alone, and no deliveries for an inbox, whose event types are none. Behind a long query it gives up rather than
    # hold up all traffic.
    atomic = False

    dependencies = [
        ("webhooks", "0024_delivery_leased_by"),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="endpoint",
            name="kind",
            field=models.CharField(
                choices=[("webhook", "Webhook"), ("inbox", "Inbox")],
                db_default="webhook",
                default="webhook",
                max_length=8,
            ),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
