from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic.
    atomic = False

    dependencies = [
        ('messaging', '0021_customer_hours'),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name='batch', name='skipped', field=models.IntegerField(db_default=0, default=0)
        ),
        migrations.RunSQL('RESET lock_timeout', migrations.RunSQL.noop),
    ]
