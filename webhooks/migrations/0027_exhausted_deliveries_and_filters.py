from django.db import migrations, models

import webhooks.models

# An event that cannot be evaluated passes. So a filter loses no event, and no body makes the publishing statement fail.
# A NULL body (its retention has ended) does not pass. jsonb_path_match is silent, so a path raises no errors.
FUNCTION = """
CREATE FUNCTION event_passes(body bytea, kind text, path jsonpath) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF octet_length(body) > 262144 THEN
        RETURN true;
    END IF;
    RETURN coalesce(
        jsonb_path_match(convert_from(body, 'UTF8')::jsonb, path, jsonb_build_object('type', kind), true), false
    );
EXCEPTION WHEN OTHERS THEN
    RETURN true;
END $$
"""


class Migration(migrations.Migration):
    # Changes only the system catalogue. The defaults are for rows that the former version inserts. If it has to wait
    # for a long query, the migration fails after 5 seconds instead of blocking all traffic.
    atomic = False

    dependencies = [
        ("webhooks", "0026_referrals"),
    ]

    operations = [
        migrations.RunSQL(FUNCTION, "DROP FUNCTION event_passes"),
        migrations.CreateModel(
            name="ExhaustedDelivery",
            fields=[
                ("delivery_id", models.UUIDField(primary_key=True, serialize=False)),
                ("endpoint_id", models.UUIDField(db_index=True)),
            ],
        ),
        migrations.RunSQL("SET lock_timeout = '5s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="endpoint",
            name="keep_answers",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="exhausted_mail_threshold",
            field=models.PositiveIntegerField(blank=True, db_default=1, default=1, null=True),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="exhausted_count",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="exhausted_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="filter",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="filter_path",
            field=webhooks.models.JsonPathField(blank=True, editable=False, null=True),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
