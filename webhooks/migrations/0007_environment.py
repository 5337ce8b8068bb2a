from django.db import migrations, models


def environment():
    """A column with a constant default: added without rewriting rows, and filled in for the former version's inserts."""
    return models.CharField(
        choices=[('live', 'Live'), ('test', 'Test')], db_default='live', default='live', max_length=4
    )


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0006_secret_unreadable_since'),
    ]

    operations = [
        # The column takes a short exclusive lock. Behind a long query it gives up rather than hold up all traffic.
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(model_name='endpoint', name='environment', field=environment()),
        migrations.AddField(model_name='event', name='environment', field=environment()),
        migrations.AddField(model_name='delivery', name='environment', field=environment()),
    ]
