from django.db import migrations, models

BEFORE = (
    "status amount_paid_paise credited_paise paid_at overdue_since reminders_sent retries_started "
    "irn ack_no ack_at signed_qr reopened_at"
).split()


def may_change(*columns: str) -> str:
    """SQL of the trigger function that allows changes only to these columns of an issued invoice."""
    names = ", ".join(f"'{name}'" for name in columns)
    return f"""
CREATE OR REPLACE FUNCTION billing_invoice_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) - ARRAY[{names}] IS DISTINCT FROM to_jsonb(OLD) - ARRAY[{names}] THEN
        RAISE EXCEPTION 'an issued invoice is never changed: correct it with a credit note';
    END IF;
    RETURN NEW;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_tds")]
    operations = [
        migrations.AddField(
            model_name="invoice",
            name="irn_cancelled_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="registration cancelled at"),
        ),
        migrations.RunSQL([may_change(*BEFORE, "irn_cancelled_at")], [may_change(*BEFORE)]),
    ]
