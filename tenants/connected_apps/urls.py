"""URLs of OAuth, without the console's page of consent."""

from django.urls import path

from tenants.connected_apps import views

urlpatterns = [
    path("oauth/register", views.register, name="oauth_register"),
    path("oauth/token", views.token, name="oauth_token"),
    path("oauth/revoke", views.revoke, name="oauth_revoke"),
    path(".well-known/oauth-authorization-server", views.server_metadata, name="oauth_server"),
    path(".well-known/oauth-protected-resource", views.resource_metadata, name="oauth_resource"),
    path(
        # RFC 9728 (3.1) puts the resource's path after the well-known name.
        ".well-known/oauth-protected-resource/mcp",
        views.resource_metadata,
        name="oauth_resource_of_mcp",
    ),
]
