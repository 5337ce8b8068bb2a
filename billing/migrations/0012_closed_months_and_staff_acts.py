import django.db.models.deletion
import gateway.ids
from django.db import migrations, models


FORBID = """
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE ON billing_closedmonth
    FOR EACH ROW EXECUTE FUNCTION billing_history_is_immutable();
CREATE FUNCTION billing_entry_is_in_an_open_month() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.at := GREATEST(NEW.at, (SELECT max(ends_at) FROM billing_closedmonth));
    RETURN NEW;
END
$$;
CREATE TRIGGER in_an_open_month BEFORE INSERT ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_entry_is_in_an_open_month();
"""
ALLOW = """
DROP TRIGGER in_an_open_month ON billing_ledgerentry;
DROP FUNCTION billing_entry_is_in_an_open_month();
DROP TRIGGER immutable ON billing_closedmonth;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0011_irn_cancelled"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClosedMonth",
            fields=[
                ("period", models.CharField(max_length=7, primary_key=True, serialize=False)),
                ("ends_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField()),
                ("closed_by", models.BigIntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="StaffAct",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("act", models.CharField(max_length=20)),
                ("target_id", models.UUIDField()),
                ("values", models.JSONField()),
                ("amount_paise", models.BigIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("waiting", "Waits for a second person"),
                            ("begun", "Begun"),
                            ("done", "Done"),
                            ("declined", "Declined"),
                        ],
                        max_length=10,
                    ),
                ),
                ("asked_by", models.BigIntegerField(null=True)),
                ("asked_at", models.DateTimeField()),
                ("decided_by", models.BigIntegerField(null=True)),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="staff_acts",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "asked_at"], name="staff_acts_of_a_day")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("decided_by", models.F("asked_by")), ("status", "done"), _negated=True
                        ),
                        name="second_person_is_another",
                    )
                ],
            },
        ),
        migrations.RunSQL([FORBID], [ALLOW]),
    ]
