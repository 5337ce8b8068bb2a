from django.db import migrations, models

import gateway.encryption


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic.
    atomic = False

    dependencies = [
        ("webhooks", "0028_history"),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="endpoint",
            name="credentials",
            field=gateway.encryption.EncryptedTextField(
                blank=True, null=True, purpose="webhook_credentials"
            ),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="retry_schedule",
            field=models.CharField(blank=True, max_length=140, null=True),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
