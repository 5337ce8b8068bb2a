"""Let a sandbox tenant and a live tenant of an app have the same reference."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0023_last_connection_of_a_client")]

    operations = [
        # The table is small. The new constraint comes first, so that references are unique at every moment. Migrating
        # back fails while a live tenant and a sandbox tenant of an app have the same reference.
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.UniqueConstraint(
                fields=("app", "external_ref", "sandbox"), name="tenant_external_ref_once_per_kind"
            ),
        ),
        migrations.RemoveConstraint(model_name="tenant", name="tenant_external_ref_per_app"),
    ]
