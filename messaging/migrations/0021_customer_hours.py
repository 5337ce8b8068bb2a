from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic.
    atomic = False

    dependencies = [
        ('messaging', '0020_erasure'),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(model_name='batch', name='customer_hours', field=models.JSONField(null=True)),
        migrations.AddField(
            model_name='scheduledmessage', name='customer_hours', field=models.JSONField(null=True)
        ),
        migrations.RunSQL('RESET lock_timeout', migrations.RunSQL.noop),
    ]
