"""The staff roles, as Django groups: made and kept up by every `migrate`.

`support` sees everything the admin shows; `reviewer` decides about tenants besides; a superuser does the rest
(platform apps, e-mail domain rules, people).
"""

from typing import Any

from django.apps import AppConfig, apps

SUPPORT = "support"
REVIEWER = "reviewer"
REVIEWER_PERMISSIONS = ("decide_tenant", "revoke_apikey")
OWN_APPS = ("tenants", "webhooks", "numbers", "messaging", "billing")


def sync(app_config: AppConfig, **_: Any) -> None:
    """After the last app's migrations: both groups with the permissions that exist now."""
    from django.contrib.auth.models import Group, Permission

    if app_config is not list(apps.get_app_configs())[-1]:
        return
    support, _created = Group.objects.get_or_create(name=SUPPORT)
    reviewer, _created = Group.objects.get_or_create(name=REVIEWER)
    views = Permission.objects.filter(content_type__app_label__in=OWN_APPS, codename__startswith="view_")
    support.permissions.set(views)
    reviewer.permissions.set([*views, *Permission.objects.filter(codename__in=REVIEWER_PERMISSIONS)])
