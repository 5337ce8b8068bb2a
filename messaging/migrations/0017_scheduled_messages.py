from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

import gateway.ids


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic. The index of batches is built concurrently.
    atomic = False

    dependencies = [("messaging", "0016_read_marks")]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="ScheduledMessage",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("environment", models.CharField(max_length=4)),
                ("phone_number_id", models.CharField(max_length=64)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("scheduled", "Scheduled"),
                            ("sending", "Sending"),
                            ("accepted", "Accepted"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="scheduled",
                        max_length=10,
                    ),
                ),
                ("send_at", models.DateTimeField()),
                ("body", models.BinaryField()),
                ("claimed_until", models.DateTimeField(null=True)),
                ("claim", models.UUIDField(null=True)),
                ("http_status", models.PositiveSmallIntegerField(null=True)),
                ("wamid", models.TextField(null=True)),
                ("response", models.BinaryField(null=True)),
                ("event_id", models.UUIDField(null=True)),
                ("sent_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "environment", "-id"], name="scheduled_by_tenant"),
                    models.Index(
                        fields=["send_at"], condition=models.Q(status="scheduled"), name="scheduled_by_time"
                    ),
                    models.Index(
                        fields=["tenant_id", "environment"],
                        condition=models.Q(status="scheduled"),
                        name="scheduled_waiting",
                    ),
                    models.Index(
                        fields=["claimed_until"],
                        condition=models.Q(status="sending"),
                        name="scheduled_claimed",
                    ),
                    models.Index(fields=["ended_at"], name="scheduled_by_age"),
                ],
            },
        ),
        migrations.AddField("batch", "send_at", models.DateTimeField(null=True)),
        migrations.AlterField(
            "batch",
            "waiting_for",
            models.CharField(
                choices=[
                    ("number_not_connected", "Number not connected"),
                    ("number_released", "Number released"),
                    ("tenant_suspended", "Business suspended"),
                    ("scheduled", "Scheduled"),
                ],
                max_length=32,
                null=True,
            ),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
        AddIndexConcurrently(
            "batch",
            models.Index(
                fields=["send_at"], condition=models.Q(waiting_for="scheduled"), name="batch_scheduled"
            ),
        ),
    ]
