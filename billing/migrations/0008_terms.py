import django.db.models.deletion
import gateway.ids
from django.db import migrations, models

TABLES = ("billing_planversion", "billing_issuedpdf")
FORBID = "".join(
    f"CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON {table}"
    " FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();\n"
    for table in TABLES
)
ALLOW = "".join(f"DROP TRIGGER immutable ON {table};" for table in TABLES)


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_mandate_registration"), ("tenants", "0001_initial")]
    operations = [
        # The columns' defaults are right for earlier documents, which all had one GST rate and the first terms.
        migrations.AddField(
            "invoiceline", "gst_percent", models.PositiveSmallIntegerField(default=18, db_default=18)
        ),
        migrations.AddField("invoiceline", "plan_version", models.UUIDField(blank=True, null=True)),
        migrations.CreateModel(
            name="PlanVersion",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("starts", models.CharField(max_length=7, verbose_name="first month")),
                ("ends", models.CharField(blank=True, max_length=7, verbose_name="last month")),
                ("first_number_paise", models.BigIntegerField()),
                ("additional_number_paise", models.BigIntegerField()),
                ("included_numbers", models.PositiveIntegerField(default=1)),
                (
                    "gst_percent",
                    models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="GST rate"),
                ),
                ("due_days", models.PositiveSmallIntegerField(default=7)),
                ("reason", models.CharField(max_length=500)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.BigIntegerField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="plan_versions",
                        to="tenants.tenant",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="IssuedPdf",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.CharField(max_length=16)),
                ("irn", models.CharField(blank=True, max_length=64)),
                ("content", models.BinaryField()),
                ("made_at", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            "issuedpdf", models.UniqueConstraint(fields=["number", "irn"], name="pdf_once_per_form")
        ),
        migrations.AddConstraint(
            "planversion",
            models.CheckConstraint(
                condition=models.Q(
                    first_number_paise__gte=0,
                    additional_number_paise__gte=0,
                    included_numbers__gte=1,
                    due_days__gte=1,
                ),
                name="terms_make_sense",
            ),
        ),
        migrations.AddConstraint(
            "planversion",
            models.CheckConstraint(
                condition=models.Q(tenant=None, gst_percent__lte=100)
                | models.Q(tenant__isnull=False, gst_percent=None),
                name="gst_rate_is_everybodys",
            ),
        ),
        migrations.RunSQL([FORBID], [ALLOW]),
    ]
