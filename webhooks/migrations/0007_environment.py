from django.db import migrations, models


def environment():
    """A column with a constant default: added without rewriting rows, and set in the former version's inserts."""
    return models.CharField(
        choices=[('live', 'Live'), ('test', 'Test')], db_default='live', default='live', max_length=4
    )


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0006_secret_unreadable_since'),
    ]

    operations = [
        # The column takes a short exclusive lock. Behind a long query, this fails instead of blocking all traffic.
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(model_name='endpoint', name='environment', field=environment()),
        migrations.AddField(model_name='event', name='environment', field=environment()),
        migrations.AddField(model_name='delivery', name='environment', field=environment()),
    ]
