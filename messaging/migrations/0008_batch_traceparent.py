from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("messaging", "0007_batch_file"),
    ]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="traceparent",
            field=models.CharField(max_length=55, null=True),
        ),
    ]
