from django.db import migrations, models


class Migration(migrations.Migration):
    # The default is for rows that the former version inserts. That version creates only webhooks. It creates no
    # deliveries for an inbox, because an inbox has no event types. If it has to wait for a long query, the migration
    # fails after 5 seconds instead of blocking all traffic.
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
