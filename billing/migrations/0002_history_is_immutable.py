from django.db import migrations

PAYMENT_COLUMNS = (
    "status amount_paid_paise credited_paise paid_at overdue_since reminders_sent retries_started "
    "irn ack_no ack_at signed_qr"
).split()
HISTORY = ["billing_billingsnapshot", "billing_invoiceline", "billing_creditnote"]

FORBID = (
    """
CREATE FUNCTION billing_history_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is never changed once written: correct it with a credit note', TG_TABLE_NAME;
END
$$;
CREATE FUNCTION billing_invoice_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) - %(columns)s IS DISTINCT FROM to_jsonb(OLD) - %(columns)s THEN
        RAISE EXCEPTION 'an issued invoice is never changed: correct it with a credit note';
    END IF;
    RETURN NEW;
END
$$;
CREATE FUNCTION billing_lines_are_complete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT coalesce(sum(amount_paise), 0) FROM billing_invoiceline WHERE invoice_id = NEW.invoice_id)
       + NEW.amount_paise > (SELECT subtotal_paise FROM billing_invoice WHERE id = NEW.invoice_id) THEN
        RAISE EXCEPTION 'the lines of an invoice cannot pass its subtotal';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER immutable BEFORE UPDATE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_invoice_is_immutable();
CREATE TRIGGER kept BEFORE DELETE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();
CREATE TRIGGER complete BEFORE INSERT ON billing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION billing_lines_are_complete();
""".replace("%(columns)s", "ARRAY[" + ", ".join(f"'{name}'" for name in PAYMENT_COLUMNS) + "]")
    + "".join(
        f"CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();\n"
        for table in HISTORY
    )
)
ALLOW = (
    "DROP TRIGGER immutable ON billing_invoice; DROP TRIGGER kept ON billing_invoice;"
    "DROP TRIGGER complete ON billing_invoiceline;"
    + "".join(f"DROP TRIGGER immutable ON {table};" for table in HISTORY)
    + "DROP FUNCTION billing_lines_are_complete(); DROP FUNCTION billing_invoice_is_immutable();"
    "DROP FUNCTION billing_history_is_immutable();"
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [migrations.RunSQL([FORBID], [ALLOW])]
