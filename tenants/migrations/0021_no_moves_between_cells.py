"""Remove the statuses of tenants that move between cells."""

from typing import Any

from django.db import migrations, models


def refuse_moved_tenants(apps: Any, schema_editor: Any) -> None:
    """Raise RuntimeError if a tenant was moved to another cell, because this version would bill the tenant here too."""
    tenants = apps.get_model("tenants", "Tenant").objects.using(schema_editor.connection.alias)
    if tenants.filter(status__in=["moving", "arriving", "moved"]).exists():
        raise RuntimeError(
            "Tenants of this database were moved to another cell, which this version does not know: stay on 1.0."
        )


class Migration(migrations.Migration):
    dependencies = [("tenants", "0020_exports_of_data")]

    operations = [
        migrations.RunPython(refuse_moved_tenants, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="tenant",
            name="status",
            field=models.CharField(
                choices=[
                    ("pending_approval", "Pending approval"),
                    ("active", "Active"),
                    ("rejected", "Rejected"),
                    ("suspended", "Suspended"),
                ],
                default="pending_approval",
                max_length=20,
            ),
        ),
    ]
