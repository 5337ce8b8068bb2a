from django.db import migrations, models


class Migration(migrations.Migration):
    # Changes only the catalogue and writes no row. Behind a long query it times out rather than block all traffic.
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
