"""The staff roles as Django groups, created and updated by every `migrate`.

`support` sees everything in the admin and writes notes. `reviewer` also decides about tenants and revokes API keys.
`finance` sees the same as `support` and acts on money: credit notes, payments, refunds and closed months. A superuser
does the rest (platform apps, e-mail domain rules, users, prices).
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
    """Create or update all groups, after the migrations of the last app."""
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
