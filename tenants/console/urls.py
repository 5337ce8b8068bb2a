"""The hosted pages at APP_URL."""

from allauth.account import views as account
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from tenants.console import (
    device_pages,
    key_pages,
    outbox,
    pages,
    request_pages,
    search,
    settings_pages,
    team_pages,
)
from tenants.console.log_in import passkeys

urlpatterns = [
    path("", pages.root, name="root"),
    path("sign-up", pages.sign_up, name="account_signup"),
    path("sign-up/sent", pages.sign_up_sent, name="sign_up_sent"),
    path("sign-up/confirm/<str:token>", pages.confirm, name="sign_up_confirm"),
    path("login", account.login, name="account_login"),
    path("logout", account.logout, name="account_logout"),
    path("inactive", account.account_inactive, name="account_inactive"),
    path("reauthenticate", account.reauthenticate, name="account_reauthenticate"),
    path("password/change", account.password_change, name="account_change_password"),
    # Somebody without a password, who logs in by passkey, gets the first by mail, as a forgotten one.
    path(
        "password/set",
        RedirectView.as_view(pattern_name="account_reset_password"),
        name="account_set_password",
    ),
    path("password/reset", account.password_reset, name="account_reset_password"),
    path("password/reset/sent", account.password_reset_done, name="account_reset_password_done"),
    path(
        "password/reset/done",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "second-factor/webauthn/keys/<int:pk>/remove/",
        passkeys.RemovePasskey.as_view(),
        name="mfa_remove_webauthn",
    ),
    path("second-factor/", include("allauth.mfa.urls")),
    path("console", pages.home, name="console"),
    path("console/first-steps", pages.first_steps, name="console_first_steps"),
    path("console/search", search.search_page, name="console_search"),
    path("console/search/hits", search.search_hits, name="console_search_hits"),
    path("console/preferences", pages.preferences, name="console_preferences"),
    path("console/application", pages.application, name="console_application"),
    path("console/requests", request_pages.request_list, name="console_requests"),
    path("console/requests/<str:request_id>", request_pages.one_request, name="console_request"),
    path("console/settings", settings_pages.settings_page, name="console_settings"),
    path("console/settings/audit", settings_pages.audit_log, name="console_audit"),
    path("console/team", team_pages.team, name="console_team"),
    path("console/team/people/<int:user_id>/role", team_pages.change_role, name="console_team_role"),
    path("console/team/people/<int:user_id>/remove", team_pages.remove, name="console_team_remove"),
    path(
        "console/team/invitations/<uuid:invitation_id>/again",
        team_pages.send_again,
        name="console_team_again",
    ),
    path(
        "console/team/invitations/<uuid:invitation_id>/withdraw",
        team_pages.withdraw,
        name="console_team_withdraw",
    ),
    path("invitation/<str:token>", team_pages.invitation, name="invitation"),
    path("outbox", outbox.mail_list, name="outbox"),
    path("outbox/<int:mail_id>", outbox.one_mail, name="outbox_mail"),
    path("console/device", device_pages.device, name="console_device"),
    path("console/api-keys", key_pages.key_list, name="console_api_keys"),
    path("console/api-keys/<uuid:key_id>/rotate", key_pages.rotate_key, name="console_rotate_key"),
    path("console/api-keys/<uuid:key_id>/revoke", key_pages.revoke_key, name="console_revoke_key"),
]
