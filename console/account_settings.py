"""Console pages of the account: its settings (retention, billing email), and its audit log."""

import re

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from console import lists
from console.change_forms import ChangeForm
from console.visit import Visit, require_active
from gateway.api.errors import ServiceError
from tenants import audit, tenant_settings
from tenants.audit_labels import action_words, changes
from tenants.labels import label
from tenants.models import AuditEntry, Tenant, User


class SettingsForm(ChangeForm):
    """The settings that a business may change itself (`PATCH /v1/tenant`)."""

    retention_days = forms.TypedChoiceField(
        label="Keep the contents of events for",
        coerce=int,
        choices=[(value, f"{value} days") for value in Tenant.Retention.values],
        help_text="Older contents are deleted, at once if you shorten the time. Times and ids are kept longer.",
    )
    billing_email = forms.EmailField(
        label="Billing email",
        required=False,
        max_length=254,
        help_text="Invoices and reminders are sent to this address.",
    )


def settings_page(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show and change the settings of the business."""
    tenant = visit.tenant
    form = SettingsForm(
        request.POST or None,
        initial={"retention_days": tenant.retention_days, "billing_email": tenant.billing_email},
    )
    if request.method == "POST" and form.is_valid():
        require_active(visit)
        changes = {name: value or None for name, value in form.changed_values().items()}
        try:
            tenant_settings.change(tenant_id=tenant.id, changes=changes, actor_user_id=visit.user.pk)
        except ServiceError as error:
            form.add_error(None, error.text)
        else:
            messages.success(request, "Saved.")
            return redirect("console_settings")
    return render(
        request,
        "console/settings.html",
        {"tenant": tenant, "form": form},
        status=400 if form.errors else 200,
    )


def audit_log(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Show the audit log, newest first."""
    rows = AuditEntry.objects.filter(tenant_id=visit.tenant.id).order_by("-id")
    if re.fullmatch("[0-9]{1,18}", begin := request.GET.get(lists.BEFORE, "")):
        rows = rows.filter(id__lt=int(begin))
    page = lists.cut_page(list(rows[: lists.ROWS_PER_PAGE + 1]))
    people = people_by_id(visit, [row.actor_user_id for row in page.rows if row.actor_user_id is not None])
    shown = [
        (
            row,
            who(row, people),
            action_words(row.action),
            label(row.target_type),
            changes(row.details, visit.zone),
        )
        for row in page.rows
    ]
    return render(
        request, "console/audit.html", {"page": page, "rows": shown, "most_a_day": audit.MOST_A_DAY}
    )


def people_by_id(visit: Visit, ids: list[int]) -> dict[int, str]:
    """The email addresses of present and former members of the business, by id."""
    removals = AuditEntry.objects.filter(
        tenant_id=visit.tenant.id, action="team.remove", target_id__in=[str(id_) for id_ in ids]
    )
    former = {int(row.target_id): f"{row.details['email']} (removed)" for row in removals}
    return former | dict(User.objects.filter(tenant=visit.tenant, pk__in=ids).values_list("pk", "email"))


def who(row: AuditEntry, people: dict[int, str]) -> str:
    """The author of an action, shown to the business: an API key's prefix, a member's email address, "Our team" for
    staff, or "The gateway".
    """
    if key := row.details.get("acting_key"):
        return f"API key {key}…"
    if row.actor_user_id is None:
        return "The gateway"
    return people.get(row.actor_user_id, "Our team")
