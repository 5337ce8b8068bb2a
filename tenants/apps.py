from django.apps import AppConfig
from django.contrib.admin import apps as admin
from django.db.models.signals import post_migrate


class TenantsConfig(AppConfig):
    default = True
    name = "tenants"
    verbose_name = "Tenants"

    def ready(self) -> None:
        from tenants import (
            console_account,  # noqa: F401 - adds its secrets to the rotation of encryption keys
            mirror,  # noqa: F401 - adds its section to the health report
            roles,
        )

        post_migrate.connect(roles.sync, dispatch_uid="roles")


class StaffAdminConfig(admin.AdminConfig):
    """Django's admin with the service's own site (`staff_site.py`)."""

    default = False
    default_site = "tenants.staff_site.StaffSite"
