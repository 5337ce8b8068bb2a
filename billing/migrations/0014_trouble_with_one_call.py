from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_first_release")]
    operations = [
        migrations.AddField(
            "providertrouble",
            "call",
            models.CharField(blank=True, db_default="", default="", max_length=60),
        ),
    ]
