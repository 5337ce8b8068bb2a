"""URLs of tenants, keys, staff and console sessions under `/v1`."""

from django.urls import path

from tenants.admin_api import (
    AdminApiKeysView,
    AdminAppKeysView,
    AdminAppsView,
    AdminAuditView,
    AdminHealthView,
    AdminMailView,
    AdminTenantsView,
)
from tenants.device_login import DeviceLoginsView
from tenants.views import (
    ApiKeysView,
    ConsoleSessionsView,
    CurrentConsoleSessionView,
    PlatformKeysView,
    TenantsView,
    TenantView,
)

urlpatterns = [
    path("tenant", TenantView.as_view({"get": "retrieve", "patch": "partial_update"}), name="tenant"),
    path("tenants", TenantsView.as_view({"get": "list", "post": "create"}), name="tenants"),
    path("tenants/<id:tenant_id>", TenantsView.as_view({"get": "retrieve"}), name="tenant-by-id"),
    path("api-keys", ApiKeysView.as_view({"get": "list", "post": "create"}), name="api-keys"),
    path("api-keys/<id:key_id>", ApiKeysView.as_view({"delete": "destroy"}), name="api-key"),
    path("api-keys/<id:key_id>/rotate", ApiKeysView.as_view({"post": "rotate"}), name="api-key-rotate"),
    path("platform-keys", PlatformKeysView.as_view({"get": "list"}), name="platform-keys"),
    path("platform-keys/<id:key_id>", PlatformKeysView.as_view({"delete": "destroy"}), name="platform-key"),
    path(
        "platform-keys/<id:key_id>/rotate",
        PlatformKeysView.as_view({"post": "rotate"}),
        name="platform-key-rotate",
    ),
    path("device-logins", DeviceLoginsView.as_view({"post": "create"}), name="device-logins"),
    path("device-logins/redeem", DeviceLoginsView.as_view({"post": "redeem"}), name="device-login-redeem"),
    path("console/sessions", ConsoleSessionsView.as_view({"post": "create"}), name="console-sessions"),
    path(
        "console/sessions/current",
        CurrentConsoleSessionView.as_view({"get": "retrieve", "delete": "destroy"}),
        name="console-session",
    ),
    path("admin/tenants", AdminTenantsView.as_view({"get": "list"}), name="admin-tenants"),
    *(
        path(
            f"admin/tenants/<id:tenant_id>/{decision}",
            AdminTenantsView.as_view({"post": decision}),
            name=f"admin-tenant-{decision}",
        )
        for decision in ("approve", "reject", "suspend", "reinstate")
    ),
    path("admin/health", AdminHealthView.as_view({"get": "retrieve"}), name="admin-health"),
    path("admin/audit", AdminAuditView.as_view({"get": "list"}), name="admin-audit"),
    path("admin/mail/last", AdminMailView.as_view({"get": "retrieve"}), name="admin-mail-last"),
    path("admin/apps", AdminAppsView.as_view({"get": "list", "post": "create"}), name="admin-apps"),
    path(
        "admin/apps/<id:app_id>/keys",
        AdminAppKeysView.as_view({"get": "list", "post": "create"}),
        name="admin-app-keys",
    ),
    path(
        "admin/apps/<id:app_id>/keys/<id:key_id>",
        AdminAppKeysView.as_view({"delete": "destroy"}),
        name="admin-app-key",
    ),
    path(
        "admin/apps/<id:app_id>/keys/<id:key_id>/rotate",
        AdminAppKeysView.as_view({"post": "rotate"}),
        name="admin-app-key-rotate",
    ),
    path("admin/api-keys", AdminApiKeysView.as_view({"get": "list"}), name="admin-api-keys"),
    path("admin/api-keys/<id:key_id>", AdminApiKeysView.as_view({"delete": "destroy"}), name="admin-api-key"),
]
