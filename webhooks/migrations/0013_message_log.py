from django.db import migrations, models


# The table is partitioned by month from the start (docs/architecture.md). `gateway/database/partitions.py` creates the
# partitions after every migrate.
MESSAGES = """
CREATE TABLE messages (
    tenant_id uuid NOT NULL,
    environment varchar(4) NOT NULL,
    key text NOT NULL,
    month date NOT NULL,
    id uuid NOT NULL,
    direction varchar(8) NOT NULL,
    waba_id varchar(255),
    phone_number_id varchar(255),
    wa_id varchar(255),
    user_id varchar(255),
    type varchar(40),
    template varchar(512),
    template_language varchar(20),
    batch_id uuid,
    idx integer,
    event_id uuid,
    accepted_at timestamptz,
    sent_at timestamptz,
    delivered_at timestamptz,
    read_at timestamptz,
    failed_at timestamptz,
    error_code integer,
    pricing_category varchar(40),
    pricing_type varchar(40),
    billable boolean,
    service_ms integer,
    upstream_ms integer,
    PRIMARY KEY (tenant_id, environment, key, month)
) PARTITION BY RANGE (month);
CREATE INDEX message_by_tenant ON messages (tenant_id, environment, id DESC);
CREATE INDEX message_by_customer ON messages (tenant_id, wa_id, id DESC) WHERE wa_id IS NOT NULL;
CREATE INDEX message_by_user ON messages (tenant_id, user_id, id DESC) WHERE user_id IS NOT NULL;
CREATE INDEX message_by_batch ON messages (batch_id, id DESC) WHERE batch_id IS NOT NULL;
CREATE INDEX message_failed ON messages (tenant_id, id DESC) WHERE failed_at IS NOT NULL;
CREATE TABLE messages_default PARTITION OF messages DEFAULT;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0012_endpoint_format'),
    ]

    operations = [
        migrations.AddField(
            model_name='event',
            name='error_code',
            field=models.IntegerField(null=True),
        ),
        migrations.AddField(
            model_name='event',
            name='status',
            field=models.CharField(max_length=20, null=True),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(MESSAGES, 'DROP TABLE messages')],
            state_operations=[
                migrations.CreateModel(
                    name='Message',
                    fields=[
                        ('pk', models.CompositePrimaryKey('tenant_id', 'environment', 'key', 'month', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('tenant_id', models.UUIDField()),
                        ('environment', models.CharField(choices=[('live', 'Live'), ('test', 'Test')], max_length=4)),
                        ('key', models.TextField()),
                        ('month', models.DateField()),
                        ('id', models.UUIDField()),
                        ('direction', models.CharField(max_length=8)),
                        ('waba_id', models.CharField(max_length=255, null=True)),
                        ('phone_number_id', models.CharField(max_length=255, null=True)),
                        ('wa_id', models.CharField(max_length=255, null=True)),
                        ('user_id', models.CharField(max_length=255, null=True)),
                        ('type', models.CharField(max_length=40, null=True)),
                        ('template', models.CharField(max_length=512, null=True)),
                        ('template_language', models.CharField(max_length=20, null=True)),
                        ('batch_id', models.UUIDField(null=True)),
                        ('idx', models.IntegerField(null=True)),
                        ('event_id', models.UUIDField(null=True)),
                        ('accepted_at', models.DateTimeField(null=True)),
                        ('sent_at', models.DateTimeField(null=True)),
                        ('delivered_at', models.DateTimeField(null=True)),
                        ('read_at', models.DateTimeField(null=True)),
                        ('failed_at', models.DateTimeField(null=True)),
                        ('error_code', models.IntegerField(null=True)),
                        ('pricing_category', models.CharField(max_length=40, null=True)),
                        ('pricing_type', models.CharField(max_length=40, null=True)),
                        ('billable', models.BooleanField(null=True)),
                        ('service_ms', models.IntegerField(null=True)),
                        ('upstream_ms', models.IntegerField(null=True)),
                    ],
                    options={
                        'db_table': 'messages',
                        'indexes': [models.Index(fields=['tenant_id', 'environment', '-id'], name='message_by_tenant'), models.Index(condition=models.Q(('wa_id__isnull', False)), fields=['tenant_id', 'wa_id', '-id'], name='message_by_customer'), models.Index(condition=models.Q(('user_id__isnull', False)), fields=['tenant_id', 'user_id', '-id'], name='message_by_user'), models.Index(condition=models.Q(('batch_id__isnull', False)), fields=['batch_id', '-id'], name='message_by_batch'), models.Index(condition=models.Q(('failed_at__isnull', False)), fields=['tenant_id', '-id'], name='message_failed')],
                    },
                ),
            ],
        ),
    ]
