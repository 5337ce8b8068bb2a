"""The staff roles, as Django groups: made and kept up by every `migrate`.

`support` sees everything the admin shows and writes notes; `reviewer` decides about tenants besides; `finance` credits,
replaces, records and pays back; a superuser does the rest (platform apps, e-mail domain rules, people, prices).
"""

from typing import Any

from django.apps import AppConfig
from django.db.models import Q

from gateway.apps import is_last_migrated

SUPPORT = "support"
REVIEWER = "reviewer"
FINANCE = "finance"
REVIEWER_PERMISSIONS = ("decide_tenant", "revoke_apikey")
FINANCE_PERMISSIONS = (
    "add_creditnote",
    "add_paymentattempt",
    "add_refund",
    "add_closedmonth",
    "change_staffact",
)
SUPPORT_PERMISSIONS = ("add_tenantnote",)
OWN_APPS = ("tenants", "webhooks", "numbers", "messaging", "billing", "request_log")


def sync(app_config: AppConfig, **_: Any) -> None:
    """After the last app's migrations: all groups with the permissions that exist now."""
    from django.contrib.auth.models import Group, Permission

    if not is_last_migrated(app_config):
        return
    support, _created = Group.objects.get_or_create(name=SUPPORT)
    reviewer, _created = Group.objects.get_or_create(name=REVIEWER)
    of_support = Permission.objects.filter(
        Q(codename__startswith="view_") | Q(codename__in=SUPPORT_PERMISSIONS),
        content_type__app_label__in=OWN_APPS,
    )
    support.permissions.set(of_support)
    reviewer.permissions.set([*of_support, *Permission.objects.filter(codename__in=REVIEWER_PERMISSIONS)])
    finance, _created = Group.objects.get_or_create(name=FINANCE)
    finance.permissions.set([*of_support, *Permission.objects.filter(codename__in=FINANCE_PERMISSIONS)])
