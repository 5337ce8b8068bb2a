from django.urls import path

from tenants.admin_api import AdminAppsView
from tenants.views import ApiKeysView, TenantsView, TenantView

urlpatterns = [
    path("tenant", TenantView.as_view({"get": "retrieve", "patch": "partial_update"}), name="tenant"),
    path("tenants", TenantsView.as_view({"get": "list", "post": "create"}), name="tenants"),
    path("tenants/<uuid:tenant_id>", TenantsView.as_view({"get": "retrieve"}), name="tenant-by-id"),
    path("api-keys", ApiKeysView.as_view({"get": "list", "post": "create"}), name="api-keys"),
    path("api-keys/<uuid:key_id>", ApiKeysView.as_view({"delete": "destroy"}), name="api-key"),
    path("api-keys/<uuid:key_id>/rotate", ApiKeysView.as_view({"post": "rotate"}), name="api-key-rotate"),
    path("admin/apps", AdminAppsView.as_view({"get": "list", "post": "create"}), name="admin-apps"),
    path(
        "admin/apps/<uuid:app_id>/keys", AdminAppsView.as_view({"post": "create_key"}), name="admin-app-keys"
    ),
]
