
import django.contrib.postgres.fields
import django.db.models.deletion
import gateway.clock
import gateway.encryption
import gateway.ids
from django.db import migrations, models


# The large tables are partitioned by range from the start (docs/architecture.md). `gateway/database/partitions.py`
# creates the partitions after every migrate. If it fails, the rows go to the default partition.
EVENTS = """
CREATE TABLE events (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    type varchar(40) NOT NULL,
    waba_id varchar(255),
    phone_number_id varchar(255),
    display_phone_number varchar(255),
    wamid text,
    wa_id varchar(255),
    user_id varchar(255),
    dedupe_key varchar(255) NOT NULL,
    raw_path text,
    raw_id uuid,
    payload_expires_on date NOT NULL
) PARTITION BY RANGE (id);
CREATE INDEX event_by_tenant ON events (tenant_id, id DESC);
CREATE INDEX event_by_wamid ON events (tenant_id, wamid) WHERE wamid IS NOT NULL;
CREATE TABLE events_default PARTITION OF events DEFAULT;
"""
EVENT_PAYLOADS = """
CREATE TABLE event_payloads (
    expires_on date NOT NULL,
    id uuid NOT NULL,
    tenant_id uuid NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (expires_on, id)
) PARTITION BY RANGE (expires_on);
CREATE TABLE event_payloads_default PARTITION OF event_payloads DEFAULT;
"""
WEBHOOK_DELIVERIES = """
CREATE TABLE webhook_deliveries (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    endpoint_id uuid NOT NULL,
    event_id uuid NOT NULL,
    event_type varchar(40) NOT NULL,
    status varchar(10) NOT NULL,
    attempts smallint NOT NULL CHECK (attempts >= 0),
    next_attempt_at timestamptz,
    last_http_status smallint,
    last_error varchar(30),
    last_response_ms integer,
    attempt_log jsonb NOT NULL,
    is_replay boolean NOT NULL,
    replay_of uuid
) PARTITION BY RANGE (id);
CREATE INDEX delivery_by_tenant ON webhook_deliveries (tenant_id, id DESC);
CREATE INDEX delivery_by_event ON webhook_deliveries (event_id);
CREATE INDEX delivery_due ON webhook_deliveries (endpoint_id, next_attempt_at)
    WHERE status IN ('pending', 'failed');
CREATE TABLE webhook_deliveries_default PARTITION OF webhook_deliveries DEFAULT;
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENT_PAYLOADS, 'DROP TABLE event_payloads')],
            state_operations=[
                migrations.CreateModel(
                    name='EventPayload',
                    fields=[
                        ('pk', models.CompositePrimaryKey('expires_on', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('expires_on', models.DateField()),
                        ('id', models.UUIDField()),
                        ('tenant_id', models.UUIDField()),
                        ('body', models.BinaryField()),
                    ],
                    options={
                        'db_table': 'event_payloads',
                    },
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(WEBHOOK_DELIVERIES, 'DROP TABLE webhook_deliveries')],
            state_operations=[
                migrations.CreateModel(
                    name='Delivery',
                    fields=[
                        ('id', models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                        ('tenant_id', models.UUIDField()),
                        ('endpoint_id', models.UUIDField()),
                        ('event_id', models.UUIDField()),
                        ('event_type', models.CharField(max_length=40)),
                        ('status', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed'), ('dead', 'Dead')], default='pending', max_length=10)),
                        ('attempts', models.PositiveSmallIntegerField(default=0)),
                        ('next_attempt_at', models.DateTimeField(null=True)),
                        ('last_http_status', models.PositiveSmallIntegerField(null=True)),
                        ('last_error', models.CharField(max_length=30, null=True)),
                        ('last_response_ms', models.PositiveIntegerField(null=True)),
                        ('attempt_log', models.JSONField(default=list)),
                        ('is_replay', models.BooleanField(default=False)),
                        ('replay_of', models.UUIDField(null=True)),
                    ],
                    options={
                        'verbose_name_plural': 'deliveries',
                        'db_table': 'webhook_deliveries',
                        'indexes': [models.Index(fields=['tenant_id', '-id'], name='delivery_by_tenant'), models.Index(fields=['event_id'], name='delivery_by_event'), models.Index(condition=models.Q(('status__in', ['pending', 'failed'])), fields=['endpoint_id', 'next_attempt_at'], name='delivery_due')],
                    },
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENTS, 'DROP TABLE events')],
            state_operations=[
                migrations.CreateModel(
                    name='Event',
                    fields=[
                        ('id', models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                        ('tenant_id', models.UUIDField()),
                        ('type', models.CharField(max_length=40)),
                        ('waba_id', models.CharField(max_length=255, null=True)),
                        ('phone_number_id', models.CharField(max_length=255, null=True)),
                        ('display_phone_number', models.CharField(max_length=255, null=True)),
                        ('wamid', models.TextField(null=True)),
                        ('wa_id', models.CharField(max_length=255, null=True)),
                        ('user_id', models.CharField(max_length=255, null=True)),
                        ('dedupe_key', models.CharField(max_length=255)),
                        ('raw_path', models.TextField(null=True)),
                        ('raw_id', models.UUIDField(null=True)),
                        ('payload_expires_on', models.DateField()),
                    ],
                    options={
                        'db_table': 'events',
                        'indexes': [models.Index(fields=['tenant_id', '-id'], name='event_by_tenant'), models.Index(condition=models.Q(('wamid__isnull', False)), fields=['tenant_id', 'wamid'], name='event_by_wamid')],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name='EventKey',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant_id', 'dedupe_key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('dedupe_key', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(default=gateway.clock.now)),
            ],
            options={
                'db_table': 'event_keys',
                'indexes': [models.Index(fields=['created_at'], name='event_key_by_age')],
            },
        ),
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=2048)),
                ('description', models.CharField(blank=True, default='', max_length=500)),
                ('event_types', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), size=None)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('active', 'Active'), ('paused', 'Paused'), ('disabled', 'Disabled')], default='pending', max_length=10)),
                ('verified_at', models.DateTimeField(blank=True, null=True)),
                ('secret', gateway.encryption.EncryptedTextField(purpose='webhook_secret')),
                ('secret_prefix', models.CharField(max_length=12)),
                ('previous_secret', gateway.encryption.EncryptedTextField(blank=True, null=True, purpose='webhook_secret')),
                ('previous_secret_expires_at', models.DateTimeField(blank=True, null=True)),
                ('last_success_at', models.DateTimeField(blank=True, null=True)),
                ('consecutive_failures', models.PositiveIntegerField(default=0)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('circuit_open_until', models.DateTimeField(blank=True, null=True)),
                ('circuit_opened', models.PositiveSmallIntegerField(default=0)),
                ('window_started_at', models.DateTimeField(blank=True, null=True)),
                ('window_attempts', models.PositiveIntegerField(default=0)),
                ('window_failures', models.PositiveIntegerField(default=0)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=gateway.clock.now, editable=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='endpoints', to='tenants.tenant')),
            ],
            options={
                'indexes': [models.Index(fields=['tenant', '-id'], name='endpoint_by_tenant')],
            },
        ),
    ]
