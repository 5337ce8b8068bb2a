"""The staff admin as a whole: who may enter, how it is found one's way in, and its content security policy."""

from typing import Any

from allauth.account.decorators import secure_admin_login
from csp.decorators import csp_replace
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from unfold.sites import UnfoldAdminSite

from tenants.console_account import has_second_factor

ADMIN_CSP = {
    "script-src": ["'self'", "'unsafe-inline'", "'unsafe-eval'"],
    "style-src": ["'self'", "'unsafe-inline'"],
}
"""The admin theme's pages evaluate attribute scripts (Alpine) and carry inline styles; only /admin allows it."""


class StaffSite(UnfoldAdminSite):  # type: ignore[misc]
    """The console's own log-in page guards the admin; where STAFF_SECOND_FACTOR is on, a second factor does too."""

    index_title = "Overview"
    enable_nav_sidebar = True

    def has_permission(self, request: HttpRequest) -> bool:
        return super().has_permission(request) and not _lacks_second_factor(request)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        if request.user.is_authenticated and _lacks_second_factor(request):
            return HttpResponseRedirect(reverse("mfa_activate_totp"))
        guarded: HttpResponseBase = secure_admin_login(super().login)(request, extra_context)
        return guarded

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        return csp_replace(ADMIN_CSP)(super().admin_view(view, cacheable))


def _lacks_second_factor(request: HttpRequest) -> bool:
    user: Any = request.user
    return bool(settings.STAFF_SECOND_FACTOR and user.is_staff and not has_second_factor(user))


def environment_badge(request: HttpRequest) -> list[str]:
    """The badge in the admin's corner."""
    return ["Production", "danger"] if settings.PRODUCTION else ["Development", "info"]


_NAVIGATION = (
    ("Businesses", (
        ("Approval queue", "pending_actions", "admin:tenants_tenant_changelist", "?status__exact=pending_approval"),
        ("Tenants", "storefront", "admin:tenants_tenant_changelist", "?status__exact=active"),
    )),
)  # fmt: skip


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The side bar: what is registered, in the order of work."""
    groups = []
    for title, entries in _NAVIGATION:
        items = []
        for name, icon, view, query in entries:
            try:
                items.append({"title": name, "icon": icon, "link": reverse(view) + query})
            except NoReverseMatch:
                continue
        groups.append({"title": title, "items": items})
    return groups
