"""Add the time at which a media file was deleted upstream through this API."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("messaging", "0005_known_media")]

    operations = [
        migrations.AddField(
            model_name="knownmedia",
            name="deleted_at",
            field=models.DateTimeField(null=True),
        ),
    ]
