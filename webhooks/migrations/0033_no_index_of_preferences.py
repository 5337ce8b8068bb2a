import importlib

from django.db import migrations

# Opt-outs have their own table since `messaging` 0018, so nothing reads preferences by customer any more.
_made = importlib.import_module('webhooks.migrations.0016_preferences_by_customer')


class Migration(migrations.Migration):

    # For the reverse migration, which builds the indexes without locking the table.
    atomic = False

    dependencies = [
        ('webhooks', '0032_event_epoch'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                # One statement each, because Citus cannot drop two indexes of a distributed table in one statement.
                migrations.RunSQL([f"DROP INDEX IF EXISTS {name}" for name in _made.INDEXES], migrations.RunSQL.noop),
                migrations.RunPython(migrations.RunPython.noop, _made.add_indexes),
            ],
            state_operations=[
                migrations.RemoveIndex(model_name='event', name=name) for name in _made.INDEXES
            ],
        ),
    ]
