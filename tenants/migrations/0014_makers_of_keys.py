"""Set the creators of the existing keys, from the audit log."""

from django.db import migrations

MAKERS = """
UPDATE tenants_apikey AS made
SET created_by_user_id = entry.actor_user_id,
    created_by_key_id = (
        SELECT maker.id FROM tenants_apikey AS maker
        WHERE maker.prefix = entry.details ->> 'acting_key'
          AND (maker.tenant_id = made.tenant_id OR maker.app_id IS NOT NULL)
        ORDER BY maker.id LIMIT 1
    )
FROM tenants_auditentry AS entry
WHERE entry.action IN ('api_key.create', 'api_key.rotate')
  AND entry.target_type = 'api_key' AND entry.target_id = made.id::text
"""


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0013_key_scopes'),
    ]

    operations = [
        migrations.RunSQL(MAKERS, migrations.RunSQL.noop),
    ]
