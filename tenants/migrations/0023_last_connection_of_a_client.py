"""Add the time at which a member last connected a client."""

from typing import Any

from django.db import migrations, models
from django.db.models import F


def fill(apps: Any, schema_editor: Any) -> None:
    clients = apps.get_model("tenants", "ConnectedAppClient").objects.using(schema_editor.connection.alias)
    clients.filter(connections__isnull=False).update(last_connected_at=F("created_at"))


class Migration(migrations.Migration):
    dependencies = [("tenants", "0022_no_former_addresses")]

    operations = [
        migrations.AddField(
            model_name="connectedappclient",
            name="last_connected_at",
            field=models.DateTimeField(null=True),
        ),
        # The table is small: it has the clients of a day, and those that members connected.
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
