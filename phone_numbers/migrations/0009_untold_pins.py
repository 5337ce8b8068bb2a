"""Add a flag: the service generated a PIN that no response has shown yet."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('numbers', '0008_words_of_choices'),
    ]

    operations = [
        migrations.AddField(
            model_name='phonenumber',
            name='pin_is_untold',
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
