"""Allow numbers to leave their tenant. The intervals that measure usage are kept, with the values of the number."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("numbers", "0005_token_questions")]

    operations = [
        migrations.AddField(
            model_name="numberstateinterval",
            name="phone_number_id",
            field=models.CharField(blank=True, max_length=64, null=True),
        ),
        migrations.AddField(
            model_name="numberstateinterval",
            name="display_phone_number",
            field=models.CharField(blank=True, max_length=32, null=True),
        ),
        migrations.AddField(
            model_name="numberstateinterval",
            name="environment",
            field=models.CharField(
                blank=True, choices=[("live", "Live"), ("test", "Test")], max_length=4, null=True
            ),
        ),
        migrations.AlterField(
            model_name="numberstateinterval",
            name="number",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="state_intervals",
                to="numbers.phonenumber",
            ),
        ),
    ]
