from django.db import migrations, models


def environment():
    """Return a column with a constant default. Adding it rewrites no row, and the former version's inserts work."""
    return models.CharField(
        choices=[('live', 'Live'), ('test', 'Test')], db_default='live', default='live', max_length=4
    )


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0006_secret_unreadable_since'),
    ]

    operations = [
        # Adding a column needs a short exclusive lock. If it has to wait for a long query, the migration fails after 5
        # seconds instead of blocking all traffic.
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(model_name='endpoint', name='environment', field=environment()),
        migrations.AddField(model_name='event', name='environment', field=environment()),
        migrations.AddField(model_name='delivery', name='environment', field=environment()),
    ]
