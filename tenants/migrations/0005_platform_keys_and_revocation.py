"""Add an index for a platform app's list of keys, and the permission to revoke any key."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies: ClassVar = [("tenants", "0004_billing_standing")]

    operations: ClassVar = [
        migrations.AlterModelOptions(
            name="apikey",
            options={"permissions": [("revoke_apikey", "Can revoke any tenant's or platform app's API key")]},
        ),
        AddIndexConcurrently(
            model_name="apikey",
            index=models.Index(
                condition=models.Q(("app__isnull", False)), fields=["app", "-id"], name="key_by_app"
            ),
        ),
    ]
