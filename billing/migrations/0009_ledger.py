import django.db.models.deletion
import gateway.ids
from django.db import migrations, models

TABLES = ("billing_ledgerentry", "billing_ledgerposting")
FORBID = """
CREATE FUNCTION billing_entry_is_balanced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT sum(amount_paise) FROM billing_ledgerposting WHERE entry_id = NEW.entry_id) <> 0 THEN
        RAISE EXCEPTION 'the postings of a ledger entry sum to zero';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER balanced AFTER INSERT ON billing_ledgerposting DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION billing_entry_is_balanced();
""" + "".join(
    f"CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON {table}"
    " FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();\n"
    for table in TABLES
)
ALLOW = (
    "".join(f"DROP TRIGGER immutable ON {table};" for table in TABLES)
    + "DROP TRIGGER balanced ON billing_ledgerposting; DROP FUNCTION billing_entry_is_balanced();"
)


class Migration(migrations.Migration):
    """Create the ledger without rows. Older invoices are posted by the next act on the tenant, or by the next run."""

    dependencies = [("billing", "0008_terms")]
    operations = [
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "act",
                    models.CharField(
                        choices=[
                            ("invoice", "Invoice issued"),
                            ("credit", "Credit note issued"),
                            ("payment", "Payment collected"),
                            ("refund", "Payment paid back"),
                            ("transfer", "Bank transfer received"),
                            ("return", "Bank transfer paid back"),
                            ("tds", "Tax deducted at source"),
                            ("set_off", "Balance set off"),
                            ("write_off", "Written off"),
                            ("check", "Mandate approved"),
                            ("settlement", "Provider settled"),
                        ],
                        max_length=12,
                    ),
                ),
                ("key", models.CharField(max_length=100, unique=True)),
                ("text", models.CharField(blank=True, max_length=500)),
                ("at", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ledger_entries",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant", "at"], name="ledger_by_tenant"),
                    models.Index(fields=["at"], name="ledger_by_day"),
                ]
            },
        ),
        migrations.CreateModel(
            name="LedgerPosting",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "account",
                    models.CharField(
                        choices=[
                            ("receivable", "Receivable"),
                            ("balance", "Customer balance"),
                            ("tds", "TDS receivable"),
                            ("bank", "Bank"),
                            ("clearing", "Provider clearing"),
                            ("fees", "Provider fees"),
                            ("fee_gst", "GST on provider fees"),
                            ("checks", "Mandate checks"),
                            ("sales", "Sales"),
                            ("gst", "GST payable"),
                            ("write_off", "Write-off"),
                        ],
                        max_length=10,
                    ),
                ),
                ("amount_paise", models.BigIntegerField()),
                (
                    "entry",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="postings",
                        to="billing.ledgerentry",
                    ),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="postings",
                        to="billing.invoice",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["account"], name="posting_by_account")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("amount_paise", 0), _negated=True), name="posting_is_something"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("account", "receivable"), _negated=True),
                            ("invoice__isnull", False),
                            _connector="OR",
                        ),
                        name="receivable_has_invoice",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SettledItem",
            fields=[
                ("entity_id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("settlement_id", models.CharField(max_length=64)),
                ("utr", models.CharField(blank=True, max_length=64, verbose_name="bank reference")),
                ("type", models.CharField(max_length=12)),
                ("amount_paise", models.BigIntegerField()),
                ("fee_paise", models.BigIntegerField()),
                ("tax_paise", models.BigIntegerField()),
                ("net_paise", models.BigIntegerField()),
                ("settled_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["settlement_id"], name="settled_by_settlement"),
                    models.Index(fields=["settled_at"], name="settled_by_day"),
                ]
            },
        ),
        migrations.RunSQL([FORBID], [ALLOW]),
    ]
