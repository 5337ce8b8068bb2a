from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the catalogue, with a lock time-out.
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
