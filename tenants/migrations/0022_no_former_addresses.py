"""Delete the addresses that logged in a user after staff had given the user another address."""

from typing import Any

from django.db import migrations
from django.db.models import F


def delete_former(apps: Any, schema_editor: Any) -> None:
    addresses = apps.get_model("account", "EmailAddress").objects.using(schema_editor.connection.alias)
    addresses.exclude(email__iexact=F("user__email")).delete()


class Migration(migrations.Migration):
    # The table is small: it has about one row for each user.
    dependencies = [
        ("tenants", "0021_no_moves_between_cells"),
        ("account", "0009_emailaddress_unique_primary_email"),
    ]

    operations = [migrations.RunPython(delete_former, migrations.RunPython.noop)]
