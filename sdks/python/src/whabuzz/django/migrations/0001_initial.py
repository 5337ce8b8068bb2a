import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="SeenEvent",
            fields=[
                ("dedupe_key", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("seen_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
        ),
    ]
