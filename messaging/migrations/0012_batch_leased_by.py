from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the system catalogue. If it has to wait for a long query, the migration fails after 5 seconds instead
    # of blocking all traffic.
    atomic = False

    dependencies = [
        ("messaging", "0011_rows_of_batch_files"),
    ]

    operations = [
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="batch",
            name="leased_by",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
