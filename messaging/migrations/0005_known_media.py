"""Add the table of media files, each with its phone number."""

from django.db import migrations, models

import gateway.clock


class Migration(migrations.Migration):
    dependencies = [("messaging", "0004_batches_wait")]

    operations = [
        migrations.CreateModel(
            name="KnownMedia",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "environment",
                        "media_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("environment", models.CharField(max_length=4)),
                ("media_id", models.CharField(max_length=64)),
                ("phone_number_id", models.CharField(max_length=64)),
                ("noted_at", models.DateTimeField(default=gateway.clock.now)),
            ],
            options={
                "indexes": [models.Index(fields=["noted_at"], name="known_media_by_age")],
            },
        ),
    ]
