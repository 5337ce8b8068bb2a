"""Add kinds of endpoints besides webhooks and inboxes. Nothing changes in the database."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0030_event_batches")]

    operations = [
        migrations.AlterField(
            model_name="endpoint",
            name="kind",
            field=models.CharField(
                choices=[
                    ("webhook", "Webhook"),
                    ("inbox", "Inbox"),
                    ("sqs", "Sqs"),
                    ("s3", "S3"),
                    ("kafka", "Kafka"),
                    ("rabbitmq", "Rabbitmq"),
                ],
                db_default="webhook",
                default="webhook",
                max_length=8,
            ),
        )
    ]
