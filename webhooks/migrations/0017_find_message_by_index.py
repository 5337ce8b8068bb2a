from django.db import migrations, models

# Compares wamids as bytes, which is faster than the rules of a language. No query sorts by them. The table is new, so
# rewriting it is quick.
COLLATE = 'ALTER TABLE messages ALTER COLUMN key TYPE text COLLATE "C"'
COLLATE_BACK = 'ALTER TABLE messages ALTER COLUMN key TYPE text COLLATE "default"'

# A cached plan made while a month's partition was empty would scan the partition even after it has grown. The plans of
# this function always use the index.
FUNCTION = """
CREATE FUNCTION message_month(
    of_tenant uuid, of_environment text, of_key text, first_month date, this_month date
) RETURNS date LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    found_month date;
BEGIN
    SELECT m.month INTO found_month FROM messages m
    WHERE m.tenant_id = of_tenant AND m.environment = of_environment AND m.key = of_key
        AND m.month = this_month;
    IF found_month IS NULL AND first_month < this_month THEN
        SELECT max(m.month) INTO found_month FROM messages m
        WHERE m.tenant_id = of_tenant AND m.environment = of_environment AND m.key = of_key
            AND m.month >= first_month AND m.month < this_month;
    END IF;
    RETURN found_month;
END $$
"""


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0016_preferences_by_customer'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(COLLATE, COLLATE_BACK)],
            state_operations=[
                migrations.AlterField(
                    model_name='message',
                    name='key',
                    field=models.TextField(db_collation='C'),
                ),
            ],
        ),
        migrations.RunSQL(FUNCTION, 'DROP FUNCTION message_month'),
    ]
