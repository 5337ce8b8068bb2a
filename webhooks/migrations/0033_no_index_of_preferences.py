import importlib

from django.db import migrations

# Since `messaging` 0018 opt-outs have their own table, so nothing reads preferences by customer any more.
_made = importlib.import_module('webhooks.migrations.0016_preferences_by_customer')


class Migration(migrations.Migration):

    # Not atomic, because the reverse migration builds the indexes without locking the table.
    atomic = False

    dependencies = [
        ('webhooks', '0032_event_epoch'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                # If it has to wait for a long query, a statement fails after 5 seconds instead of blocking all
                # traffic. One statement per index, because Citus cannot drop two indexes of a distributed table in
                # the same statement.
                migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
                migrations.RunSQL([f"DROP INDEX IF EXISTS {name}" for name in _made.INDEXES], migrations.RunSQL.noop),
                migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
                migrations.RunPython(migrations.RunPython.noop, _made.add_indexes),
            ],
            state_operations=[
                migrations.RemoveIndex(model_name='event', name=name) for name in _made.INDEXES
            ],
        ),
    ]
