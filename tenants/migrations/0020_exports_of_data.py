import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    # The table is small, because files are kept for only a week. So the index is built without CONCURRENTLY.
    dependencies = [
        ("tenants", "0019_agreed_texts"),
    ]

    operations = [
        migrations.AlterField(
            model_name="export",
            name="user",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddConstraint(
            model_name="export",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind__in", ["account", "customer"]), ("rows__isnull", True)),
                fields=("tenant",),
                name="one_open_export_of_data",
            ),
        ),
    ]
