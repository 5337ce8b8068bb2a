"""Add the table of flows, groups and catalogs that a tenant may address by id."""

from django.db import migrations, models

import gateway.clock


class Migration(migrations.Migration):

    dependencies = [
        ('messaging', '0012_batch_leased_by'),
    ]

    operations = [
        migrations.CreateModel(
            name='KnownNode',
            fields=[
                ('pk', models.CompositePrimaryKey('tenant_id', 'environment', 'node_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('tenant_id', models.UUIDField()),
                ('environment', models.CharField(max_length=4)),
                ('node_id', models.CharField(max_length=255)),
                ('kind', models.CharField(max_length=16)),
                ('waba_id', models.CharField(max_length=64)),
                ('noted_at', models.DateTimeField(default=gateway.clock.now)),
            ],
        ),
    ]
