from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_words_of_choices")]
    operations = [
        migrations.AddField(
            "mandate",
            "provider_registration_id",
            models.CharField(blank=True, max_length=64, null=True),
        ),
    ]
