from django.db import migrations, models

# A credit note is registered after it is issued. Only the columns of the registration may change.
REGISTERED = """
CREATE FUNCTION billing_credit_note_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) - ARRAY['irn', 'ack_no', 'ack_at', 'signed_qr']
       IS DISTINCT FROM to_jsonb(OLD) - ARRAY['irn', 'ack_no', 'ack_at', 'signed_qr'] THEN
        RAISE EXCEPTION 'an issued credit note is never changed';
    END IF;
    RETURN NEW;
END
$$;
DROP TRIGGER immutable ON billing_creditnote;
CREATE TRIGGER immutable BEFORE UPDATE ON billing_creditnote
    FOR EACH ROW EXECUTE FUNCTION billing_credit_note_is_immutable();
CREATE TRIGGER kept BEFORE DELETE ON billing_creditnote
    FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();
"""
UNREGISTERED = """
DROP TRIGGER kept ON billing_creditnote;
DROP TRIGGER immutable ON billing_creditnote;
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON billing_creditnote
    FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();
DROP FUNCTION billing_credit_note_is_immutable();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_invoices")]
    operations = [
        migrations.AddField("creditnote", "irn", models.CharField(blank=True, max_length=64, null=True)),
        migrations.AddField("creditnote", "ack_no", models.CharField(blank=True, max_length=30, null=True)),
        migrations.AddField("creditnote", "ack_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("creditnote", "signed_qr", models.TextField(blank=True, null=True)),
        migrations.RunSQL([REGISTERED], [UNREGISTERED]),
    ]
