"""Django apps of tenants, and of the staff admin's site."""

from typing import Any

from django.apps import AppConfig
from django.contrib.admin import apps as admin
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.db.models.signals import post_migrate


class TenantsConfig(AppConfig):
    default = True
    name = "tenants"
    verbose_name = "Tenants"

    def ready(self) -> None:
        from tenants import mail  # noqa: F401 - adds its metrics
        from tenants.credentials import (
            key_cache_repair,  # noqa: F401 - adds its section to the health report
            log_in,  # noqa: F401 - lists its secrets for `rotate_encryption`
        )
        from tenants.staff import roles

        post_migrate.connect(roles.sync, dispatch_uid="roles")


class StaffAdminConfig(admin.SimpleAdminConfig):
    """Django's admin app with the service's own site (`staff/site.py`).

    The URLs import the admin's pages, so background processes never load them.
    """

    default = False
    default_site = "tenants.staff.site.StaffSite"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_admin, checks.Tags.admin)


def _check_admin(**given: Any) -> list[checks.CheckMessage]:
    """Import the admin's pages, then run Django's check of the admin. Without the import, the check would find no
    pages.
    """
    import gateway.urls  # noqa: F401 - imports them

    return check_admin_app(**given)
