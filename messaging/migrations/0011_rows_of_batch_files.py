"""Add the row number in the file for each message of a batch. The index is built concurrently."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("messaging", "0010_plural_of_batch")]

    operations = [
        migrations.AddField(
            model_name="batchfile",
            name="row_numbers",
            field=ArrayField(base_field=models.PositiveIntegerField(), null=True, size=None),
        ),
        AddIndexConcurrently(
            model_name="batchfile",
            index=models.Index(fields=["batch_id"], name="batch_file_of_batch"),
        ),
    ]
