from django.db import migrations, models

import gateway.clock


class Migration(migrations.Migration):
    # Changes only the system catalogue. The columns are not positive integer fields, because their check would read all
    # rows. If it has to wait for a long query, the migration fails after 5 seconds instead of blocking all traffic.
    dependencies = [
        ("messaging", "0014_bytes_of_batches"),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField("batch", "messages_hash", models.BinaryField(max_length=32, null=True)),
        migrations.AddField("batchitem", "message_ref", models.CharField(max_length=255, null=True)),
        migrations.AddField("batchitem", "first_batch_id", models.UUIDField(null=True)),
        migrations.AddField("batchitem", "first_idx", models.IntegerField(null=True)),
        migrations.CreateModel(
            name="MessageReference",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "tenant_id",
                        "environment",
                        "ref_hash",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("environment", models.CharField(max_length=4)),
                ("ref_hash", models.BinaryField(max_length=32)),
                ("batch_id", models.UUIDField()),
                ("idx", models.PositiveIntegerField()),
                ("created_at", models.DateTimeField(default=gateway.clock.now)),
            ],
            options={
                "indexes": [models.Index(fields=["created_at"], name="message_reference_by_age")],
            },
        ),
    ]
