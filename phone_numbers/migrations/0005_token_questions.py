"""Add the time of the last check of a token that Meta had rejected."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("numbers", "0004_state_intervals")]

    operations = [
        migrations.AddField(
            model_name="businessaccount",
            name="token_questioned_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
