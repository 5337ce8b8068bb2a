from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the catalogue, and writes no row. The default is for rows of the former version. It creates only
    # webhooks, and no deliveries for an inbox, which has no event types. Behind a long query, the migration fails
    # instead of blocking all traffic.
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
