"""The staff admin as a whole: who may enter, how it is found one's way in, and its content security policy."""

from collections.abc import Iterable
from typing import Any

from allauth.account.decorators import secure_admin_login
from csp.decorators import csp_replace
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from unfold.sites import UnfoldAdminSite

from tenants.console.accounts import has_second_factor
from tenants.staff.roles import OWN_APPS

ADMIN_CSP = {
    "script-src": ["'self'", "'unsafe-inline'", "'unsafe-eval'"],
    "style-src": ["'self'", "'unsafe-inline'"],
}
"""The admin theme's pages evaluate attribute scripts (Alpine) and carry inline styles; only /admin allows it."""


class StaffSite(UnfoldAdminSite):  # type: ignore[misc]
    """The console's own log-in page guards the admin; where STAFF_SECOND_FACTOR is on, a second factor does too."""

    index_title = "Overview"
    enable_nav_sidebar = True

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Only the service's own pages: those that packages bring may show what no page should (TOTP secrets)."""
        models: list[Any] = (
            list(model_or_iterable) if isinstance(model_or_iterable, Iterable) else [model_or_iterable]
        )
        own = [model for model in models if model._meta.app_label in OWN_APPS]
        super().register(own, admin_class, **options)

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


_NAVIGATION: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "Businesses",
        (
            ("Overview", "dashboard", "admin:index", ""),
            (
                "Approval queue",
                "pending_actions",
                "admin:tenants_tenant_changelist",
                "?status__exact=pending_approval",
            ),
            ("Tenants", "storefront", "admin:tenants_tenant_changelist", ""),
            ("Platform apps", "apps", "admin:tenants_platformapp_changelist", ""),
            ("API keys", "key", "admin:tenants_apikey_changelist", ""),
        ),
    ),
    (
        "Messaging",
        (
            ("Accounts", "business", "admin:numbers_businessaccount_changelist", ""),
            ("Numbers", "call", "admin:numbers_phonenumber_changelist", ""),
            ("Templates", "description", "admin:messaging_messagetemplate_changelist", ""),
            ("Batches", "stacks", "admin:messaging_batch_changelist", ""),
            ("Kept notifications", "inbox", "admin:messaging_keptnotification_changelist", ""),
        ),
    ),
    (
        "Webhooks",
        (
            ("Endpoints", "webhook", "admin:webhooks_endpoint_changelist", ""),
            ("Deliveries", "local_shipping", "admin:webhooks_delivery_changelist", ""),
            ("Events", "bolt", "admin:webhooks_event_changelist", ""),
        ),
    ),
    (
        "Billing",
        (
            ("Invoices", "receipt_long", "admin:billing_invoice_changelist", ""),
            ("Credit notes", "undo", "admin:billing_creditnote_changelist", ""),
            ("Payments", "payments", "admin:billing_paymentattempt_changelist", ""),
            ("Refunds", "currency_rupee", "admin:billing_refund_changelist", ""),
            ("Mandates", "autorenew", "admin:billing_mandate_changelist", ""),
            ("Monthly usage", "event_available", "admin:billing_billingsnapshot_changelist", ""),
            ("Billing profiles", "badge", "admin:billing_billingprofile_changelist", ""),
            ("Provider notices", "notifications", "admin:billing_providerevent_changelist", ""),
        ),
    ),
    (
        "Staff",
        (
            ("Audit log", "history", "admin:tenants_auditentry_changelist", ""),
            ("People", "group", "admin:tenants_user_changelist", ""),
            ("E-mail domains", "alternate_email", "admin:tenants_emaildomainrule_changelist", ""),
        ),
    ),
)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The side bar: what is registered, in the order of work."""
    groups = []
    for title, entries in _NAVIGATION:
        items = []
        for name, icon, view, query in entries:
            try:
                path = reverse(view)
            except NoReverseMatch:
                continue
            queue = request.GET.get("status__exact") == "pending_approval"
            here = request.path == path if view == "admin:index" else request.path.startswith(path)
            active = here and (view != "admin:tenants_tenant_changelist" or queue == bool(query))
            items.append({"title": name, "icon": icon, "link": path + query, "active": active})
        groups.append({"title": title, "items": items})
    return groups
