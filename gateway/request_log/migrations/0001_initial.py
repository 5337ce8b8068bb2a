from django.db import migrations, models

API_REQUESTS = """
CREATE TABLE api_requests (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    environment varchar(4) NOT NULL,
    method varchar(16) NOT NULL,
    route varchar(200),
    status smallint NOT NULL,
    error_code varchar(64),
    key_prefix varchar(16),
    own_ms double precision NOT NULL,
    upstream_ms double precision NOT NULL
) PARTITION BY RANGE (id);
CREATE INDEX request_by_tenant ON api_requests (tenant_id, environment, id DESC);
CREATE TABLE api_requests_default PARTITION OF api_requests DEFAULT;
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(API_REQUESTS, "DROP TABLE api_requests")],
            state_operations=[
                migrations.CreateModel(
                    name="ApiRequest",
                    fields=[
                        ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                        ("tenant_id", models.UUIDField()),
                        ("environment", models.CharField(max_length=4)),
                        ("method", models.CharField(max_length=16)),
                        ("route", models.CharField(max_length=200, null=True)),
                        ("status", models.PositiveSmallIntegerField()),
                        ("error_code", models.CharField(max_length=64, null=True)),
                        ("key_prefix", models.CharField(max_length=16, null=True)),
                        ("own_ms", models.FloatField()),
                        ("upstream_ms", models.FloatField()),
                    ],
                    options={
                        "db_table": "api_requests",
                        "indexes": [
                            models.Index(
                                fields=["tenant_id", "environment", "-id"], name="request_by_tenant"
                            )
                        ],
                    },
                ),
            ],
        ),
    ]
