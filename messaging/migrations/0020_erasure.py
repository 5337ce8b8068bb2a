from django.db import migrations, models

import gateway.encryption
import gateway.ids


class Migration(migrations.Migration):
    dependencies = [
        ("messaging", "0019_flow_endpoints"),
    ]

    operations = [
        migrations.CreateModel(
            name="Erasure",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("tenant_id", models.UUIDField()),
                ("customer_id", gateway.encryption.EncryptedTextField(null=True, purpose="erasure_customer")),
                ("customer_hash", models.CharField(max_length=64)),
                ("erased", models.JSONField(null=True)),
                ("leased_until", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [models.Index(fields=["tenant_id", "-id"], name="erasure_by_tenant")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("completed_at__isnull", True)),
                        fields=("tenant_id", "customer_hash"),
                        name="one_open_erasure_of_a_customer",
                    )
                ],
            },
        ),
    ]
