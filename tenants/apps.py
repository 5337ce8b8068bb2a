"""Django apps of tenants, and of the staff admin's site."""

from django.apps import AppConfig
from django.contrib.admin import apps as admin
from django.db.models.signals import post_migrate


class TenantsConfig(AppConfig):
    default = True
    name = "tenants"
    verbose_name = "Tenants"

    def ready(self) -> None:
        from tenants import mail_monitoring  # noqa: F401 - adds its metrics
        from tenants.console import (
            accounts,  # noqa: F401 - lists its secrets for `rotate_encryption`
            entries,  # noqa: F401 - registers its pages and first steps
            search,  # noqa: F401 - registers its part of the search
        )
        from tenants.credentials import key_cache_repair  # noqa: F401 - adds its section to the health report
        from tenants.staff import (
            finders,  # noqa: F401 - registers its part of the staff's search
            roles,
        )

        post_migrate.connect(roles.sync, dispatch_uid="roles")


class StaffAdminConfig(admin.AdminConfig):
    """Django's admin with the service's own site (`staff/site.py`)."""

    default = False
    default_site = "tenants.staff.site.StaffSite"
