from django.db import migrations

FORBID = """
CREATE FUNCTION tenants_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON tenants_auditentry
    FOR EACH ROW EXECUTE FUNCTION tenants_audit_is_append_only();
"""
ALLOW = """
DROP TRIGGER append_only ON tenants_auditentry;
DROP FUNCTION tenants_audit_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]
    operations = [migrations.RunSQL(FORBID, ALLOW)]
