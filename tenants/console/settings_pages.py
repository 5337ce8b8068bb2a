"""Console pages of the account's settings: retention, billing address, and the audit log of the business."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from gateway.roles import Area
from tenants import tenants
from tenants.console import keyset
from tenants.console.frame import Visit, console_page, require_active
from tenants.models import AuditEntry, Tenant, User


class SettingsForm(forms.Form):
    """What a business may change of itself (`PATCH /v1/tenant`)."""

    retention_days = forms.TypedChoiceField(
        label="Keep the contents of events for",
        coerce=int,
        choices=[(value, f"{value} days") for value in Tenant.Retention.values],
        help_text="Contents that are older are deleted, also when you make it shorter now. Times and ids stay longer.",
    )
    billing_email = forms.EmailField(
        label="Billing email", required=False, max_length=254, help_text="Invoices and reminders go there."
    )


@require_http_methods(["GET", "HEAD", "POST"])
@console_page(Area.SETTINGS)
def settings_page(request: HttpRequest, visit: Visit) -> HttpResponse:
    """The settings, and who belongs to the business."""
    tenant = visit.tenant
    form = SettingsForm(
        request.POST or None,
        initial={"retention_days": tenant.retention_days, "billing_email": tenant.billing_email},
    )
    if request.method == "POST" and form.is_valid():
        require_active(visit)
        changes = {**form.cleaned_data, "billing_email": form.cleaned_data["billing_email"] or None}
        tenants.change(tenant_id=tenant.id, changes=changes, actor_user_id=visit.user.pk)
        messages.success(request, "Saved.")
        return redirect("console_settings")
    people = User.objects.filter(tenant=tenant, is_active=True).order_by("email")
    return render(
        request,
        "console/settings.html",
        {"tenant": tenant, "form": form, "people": people},
        status=400 if form.errors else 200,
    )


@require_safe
@console_page(Area.SETTINGS)
def audit_log(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Who changed what, newest first."""
    rows = AuditEntry.objects.filter(tenant_id=visit.tenant.id).order_by("-id")
    if (begin := request.GET.get(keyset.BEFORE, "")).isdigit():
        rows = rows.filter(id__lt=min(int(begin), 2**63 - 1))
    page = keyset.cut(list(rows[: keyset.ROWS_PER_PAGE + 1]))
    people = dict(
        User.objects.filter(pk__in={row.actor_user_id for row in page.rows}).values_list("pk", "email")
    )
    return render(
        request,
        "console/audit.html",
        {"page": page, "rows": [(row, _actor(row, people, visit), _said(row)) for row in page.rows]},
    )


def _actor(row: AuditEntry, people: dict[int, str], visit: Visit) -> str:
    """Who did it, as the business may know it: its own people by address, staff as our team."""
    if key := row.details.get("acting_key"):
        return f"API key {key}…"
    if row.actor_user_id is None:
        return "The gateway"
    own = User.objects.filter(pk=row.actor_user_id, tenant=visit.tenant).exists()
    return people.get(row.actor_user_id, "a former person") if own else "Our team"


def _said(row: AuditEntry) -> str:
    """The changed values of an entry, before and after."""
    before, after = row.details.get("before"), row.details.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ""
    parts: list[Any] = [f"{name}: {before.get(name)} → {after[name]}" for name in after]
    return ", ".join(parts)
