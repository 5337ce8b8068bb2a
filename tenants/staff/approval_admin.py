"""The approval queue and the tenants in the staff admin, with evidence, flags and the four decisions. Each decision has
a dialog.

The decisions are the functions of `tenant_status.py`, which `/v1/admin` calls too.
"""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.timesince import timesince
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from gateway.api.errors import Conflict
from gateway.text_field import TextField
from tenants import tenant_status
from tenants.audit_labels import action_words
from tenants.labels import label, words
from tenants.models import AuditEntry, SignUp, Tenant, TenantNote, User
from tenants.signup import screening, tax_ids
from tenants.staff import search, support_view
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done, redirect_dialog
from tenants.staff.read_only_admin import CodeFilter, ReadOnlyAdmin, display, labelled, status_label

STATUS_LABELS = {
    "active": "success",
    "pending_approval": "warning",
    "rejected": "danger",
    "suspended": "danger",
}
QUEUE = "Approval queue"
TRAIL = (
    "tenant.sign_up",
    "tenant.create",
    "tenant.apply_again",
    "tenant.approve",
    "tenant.reject",
    "tenant.suspend",
    "tenant.reinstate",
    "tenant.close",
)
"""The actions in the trail of a tenant's page. The audit log has all others."""
LONGEST_TRAIL = 20
SEEN, MOST_SEEN = "seen_applications", 50
"""The session key of the versions of the applications that the reviewer saw last, and their number."""
CANNED_REJECTIONS = (
    ("", "Write your own below"),
    (
        "The website does not show the company that signed up. Please correct it in the console and apply again.",
        "Website shows another business",
    ),
    (
        "The tax id does not belong to the company named. Please correct it in the console and apply again.",
        "Tax ID of another company",
    ),
    ("We cannot serve this kind of business under the messaging platform's policies.", "Business not served"),
)


class RejectForm(DialogForm):
    canned = forms.ChoiceField(
        label="Usual reasons", choices=CANNED_REJECTIONS, required=False, widget=UnfoldAdminSelectWidget
    )
    reason = TextField(
        label="Reason (mailed to the business)",
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        cleaned["reason"] = cleaned.get("reason", "").strip() or cleaned.get("canned", "")
        if not cleaned["reason"]:
            self.add_error("reason", "Give a reason: the business reads it.")
        return cleaned


class SuspendForm(DialogForm):
    reason = forms.ChoiceField(
        choices=[("abuse", "Abuse"), ("admin", "Administrative")], widget=UnfoldAdminSelectWidget
    )
    note = TextField(
        label="Note (for staff)",
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
    )


class NoteForm(DialogForm):
    text = TextField(
        label="Note (for staff)", max_length=2000, widget=UnfoldAdminTextareaWidget(attrs={"rows": 4})
    )


class SeeAsForm(DialogForm):
    reason = forms.CharField(label="Why", max_length=200, widget=UnfoldAdminTextInputWidget())


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    """The queue (`?status__exact=pending_approval`, longest wait first) and all tenants."""

    list_display = (
        "name",
        "shown_status",
        "waiting",
        "shown_website",
        "shown_tax_id",
        "shown_flags",
        "created_at",
    )
    list_filter = ("status", "sandbox", ("created_via", CodeFilter), "billing_status")
    search_fields = ("name", "contact_email", "website", "tax_id", "=id", "external_ref")
    search_help_text = "Name, email, website, tax ID, external reference or ID"
    change_form_before_template = "admin/tenant_evidence.html"
    actions_detail = (
        "approve",
        "reject",
        "suspend",
        "reinstate",
        "reinstate_and_approve",
        "see_as",
        "add_note",
    )
    fieldsets = (
        (
            "Business",
            {
                "fields": (
                    "name",
                    "status",
                    "contact_email",
                    "website",
                    "tax_id",
                    "kind_of_tax_id",
                    "email_domain",
                )
            },
        ),
        ("Decisions", {"fields": ("approved_at", "rejected_reason", "why_suspended")}),
        (
            "Account",
            {
                "fields": (
                    "id",
                    "app",
                    "external_ref",
                    "way_in",
                    "created_at",
                    "sandbox",
                    "retention",
                )
            },
        ),
        ("Billing", {"fields": ("billing_status", "trial_ends_at", "billing_email")}),
        (
            "First steps",
            {"fields": ("api_key_created", "number_connected", "webhook_verified", "test_message_sent")},
        ),
    )

    readonly_fields = ("retention", "kind_of_tax_id", "why_suspended", "way_in")
    kind_of_tax_id = labelled("tax_id_type")
    why_suspended = labelled("suspended_reason")
    way_in = labelled("created_via")
    shown_status = status_label(STATUS_LABELS)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the queue under its own title."""
        named = {"list_name": QUEUE} if _is_queue(request) else {}
        return cast("HttpResponse", super().changelist_view(request, {**(extra_context or {}), **named}))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        return Tenant.objects.with_waiting_since().order_by(*self.get_ordering(request))

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("waiting_since", "id") if _is_queue(request) else ("-id",)

    @display(description="Events are kept")
    def retention(self, tenant: Tenant) -> str:
        return f"{tenant.retention_days} days"

    @display(description="Waiting")
    def waiting(self, tenant: Any) -> str:
        return timesince(tenant.waiting_since, depth=1) if tenant.waiting_since else ""

    @display(description="Website")
    def shown_website(self, tenant: Tenant) -> str:
        if not tenant.website:
            return ""
        if not tenant.email_domain:
            return tenant.website.removeprefix("https://")
        same = screening.website_domain(tenant.website) == tenant.email_domain
        return format_html(
            "<div>{}<br><small>{} {}</small></div>",
            tenant.website.removeprefix("https://"),
            "✓ same domain:" if same else "≠ email at",
            tenant.email_domain,
        )

    @display(description="Tax ID")
    def shown_tax_id(self, tenant: Tenant) -> str:
        if not tenant.tax_id:
            return ""
        return format_html(
            "<div>{}<br><small>{}</small></div>",
            tenant.tax_id,
            tax_ids.parse(tenant.tax_id).holder or "no PAN",
        )

    @display(description="Flags")
    def shown_flags(self, tenant: Tenant) -> str:
        flags = format_html_join(mark_safe("<br>"), '<span title="{}">{}{}</span>', _flag_rows(tenant))
        return format_html("<div>{}</div>", flags)

    def has_decide_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("tenants.decide_tenant")

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Show only the actions that the tenant's status allows. The decision itself checks again."""
        tenant = self.get_object(request, object_id)
        approved = tenant is not None and tenant.approved_at is not None
        closed = tenant is not None and Tenant.objects.closed().filter(pk=tenant.pk).exists()
        possible = {
            "pending_approval": {"approve", "reject", "suspend"},
            "active": {"suspend"},
            "rejected": {"approve", "suspend"},
            "suspended": set() if closed else {"reinstate" if approved else "reinstate_and_approve"},
        }.get(tenant.status if tenant else "", set()) | {"see_as", "add_note"}
        offered = super().get_actions_detail(request, object_id)
        return [entry for entry in offered if entry.method.original_function_name in possible]

    @action(
        description="Approve",
        permissions=["decide"],
        icon="check_circle",
        variant=ActionVariant.SUCCESS,
        dialog=dialog("Approve this business?", "The trial begins, and the business gets a mail.", "Approve"),
    )
    def approve(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        seen = request.session.get(SEEN, {}).get(object_id)
        return _decide(request, object_id, "approved", tenant_status.approve, seen=seen)

    @action(
        description="Reject",
        permissions=["decide"],
        icon="cancel",
        variant=ActionVariant.DANGER,
        dialog=dialog(
            "Reject this business?", "The business gets a mail with the reason.", "Reject", RejectForm
        ),
    )
    def reject(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        seen, reason = request.session.get(SEEN, {}).get(object_id), form.cleaned_data["reason"]
        return _decide(request, object_id, "rejected", tenant_status.reject, reason=reason, seen=seen)

    @action(
        description="Suspend",
        permissions=["decide"],
        icon="block",
        variant=ActionVariant.WARNING,
        dialog=dialog(
            "Suspend this business?",
            "Sending stops, and the business gets a mail.",
            "Suspend",
            SuspendForm,
        ),
    )
    def suspend(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        reason, note = form.cleaned_data["reason"], form.cleaned_data["note"]
        return _decide(request, object_id, "suspended", tenant_status.suspend, reason=reason, note=note)

    @action(
        description="Reinstate",
        permissions=["decide"],
        icon="restart_alt",
        variant=ActionVariant.SUCCESS,
        dialog=dialog(
            "End the suspension?", "Waiting deliveries are sent, and the business gets a mail.", "Reinstate"
        ),
    )
    def reinstate(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        return _decide(request, object_id, "reinstated", tenant_status.reinstate)

    @action(
        description="Reinstate and approve",
        permissions=["decide"],
        icon="restart_alt",
        variant=ActionVariant.SUCCESS,
        dialog=dialog(
            "End the suspension and approve?",
            "This business was never approved. Reinstating approves it: it becomes active, its trial begins and it "
            "gets the mail of an approval.",
            "Reinstate and approve",
        ),
    )
    def reinstate_and_approve(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        return _decide(request, object_id, "reinstated and approved", tenant_status.reinstate)

    def has_look_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm(support_view.PERMISSION)

    def has_note_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("tenants.add_tenantnote")

    @action(
        description="See as this business",
        permissions=["look"],
        icon="visibility",
        dialog=dialog(
            "See the console as this business?",
            "For half an hour you can read its pages, but not change anything. Secrets and the texts of messages and "
            "events are hidden. The audit log of the business records your visit.",
            "Open the console",
            SeeAsForm,
        ),
    )
    def see_as(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        reason = form.cleaned_data["reason"]
        support_view.begin(request, tenant=tenant, user=cast("User", request.user), reason=reason)
        return redirect_dialog(request, reverse("console"))

    @action(
        description="Add a note",
        permissions=["note"],
        icon="note_add",
        dialog=dialog(
            "Add a note", "Staff read it on this page. The business never sees it.", "Add it", NoteForm
        ),
    )
    def add_note(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        TenantNote.objects.create(
            tenant=tenant, author=cast("User", request.user), text=form.cleaned_data["text"]
        )
        return done(request, "The note is added.", change_url(Tenant, tenant.pk))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        tenant = self.get_object(request, object_id)
        evidence: dict[str, Any] = {}
        if tenant is not None:
            _remember_seen(request, tenant)
            # The answers are read after the version, so they are never older.
            tenant.refresh_from_db()
            sign_up = SignUp.objects.filter(tenant=tenant).first()
            evidence = {
                "sign_up": sign_up,
                "state": tax_ids.STATES.get(sign_up.state_code, "") if sign_up else "",
                "tax": tax_ids.parse(tenant.tax_id) if tenant.tax_id else None,
                "flags": _linked_flags(tenant),
                "trail": _trail(object_id),
                "notes": TenantNote.objects.filter(tenant=tenant).select_related("author").order_by("-id"),
                "lines": list(search.lines_of(request.user, tenant)),
            }
        return cast(
            "HttpResponse",
            super().change_view(request, object_id, form_url, {**(extra_context or {}), **evidence}),
        )


def _remember_seen(request: HttpRequest, tenant: Tenant) -> None:
    """Remember in the session which version of an application the reviewer sees, for the decision."""
    if tenant.status in {Tenant.Status.PENDING_APPROVAL, Tenant.Status.REJECTED}:
        seen = request.session.pop(SEEN, {})
        seen.pop(str(tenant.pk), None)
        seen[str(tenant.pk)] = tenant_status.application_version(tenant.pk)
        request.session[SEEN] = dict(list(seen.items())[-MOST_SEEN:])


def _is_queue(request: HttpRequest) -> bool:
    return request.GET.get("status__exact") == Tenant.Status.PENDING_APPROVAL


def _trail(tenant_id: str) -> list[tuple[AuditEntry, str, str]]:
    """The newest decisions about a tenant, each with the label of its action and its actor."""
    decisions = AuditEntry.objects.filter(tenant_id=tenant_id, action__in=TRAIL)
    entries = list(decisions.order_by("-id")[:LONGEST_TRAIL])
    people = User.objects.in_bulk([entry.actor_user_id for entry in entries if entry.actor_user_id])
    return [
        (
            entry,
            action_words(entry.action),
            people[entry.actor_user_id].email if entry.actor_user_id in people else "",
        )
        for entry in entries
    ]


def _linked_flags(tenant: Tenant) -> list[tuple[dict[str, str], str, str]]:
    """The labels of a tenant's flags. A flag about other tenants links to the search that finds them."""
    tax = tax_ids.parse(tenant.tax_id) if tenant.tax_id else None
    searched = {
        "duplicate_tax_id": tenant.tax_id,
        "duplicate_pan": tax.pan if tax else None,
        "duplicate_email_domain": tenant.email_domain,
        "duplicate_website": tenant.website,
        "previously_rejected": (tax.pan if tax else None) or tenant.email_domain,
    }
    page = reverse("admin:tenants_tenant_changelist")
    return [
        (
            flag,
            label(flag["code"]),
            f"{page}?{urlencode({'q': text})}" if (text := searched.get(flag["code"])) else "",
        )
        for flag in tenant.flags
    ]


def _flag_rows(tenant: Tenant) -> list[tuple[str, str, str]]:
    marks = {"high": "● ", "warning": "◐ ", "info": "○ "}
    return [(flag["detail"], marks.get(flag["severity"], ""), words(flag["code"])) for flag in tenant.flags]


def _decide(
    request: HttpRequest, object_id: str, outcome: str, decide: Callable[..., Tenant], **arguments: Any
) -> HttpResponse:
    """Run a decision and show the result. After an approval or a rejection, redirect to the next tenant in the queue.
    In all other cases, redirect to the tenant, for example when another staff member decided first.
    """
    try:
        tenant = decide(tenant_id=object_id, actor_user_id=request.user.pk, **arguments)
    except Conflict as error:
        decided = "Another person decided before you. " if "status" in (error.details or {}) else ""
        messages.error(request, f"{decided}{error.text}")
        return redirect_dialog(request, change_url(Tenant, object_id))
    following = None
    if outcome in {"approved", "rejected"}:
        following = Tenant.objects.queue().first()
    said = f"{tenant.name} is {outcome}."
    if following is not None:
        said += f" Next in the queue: {following.name}."
    return done(request, said, change_url(Tenant, (following or tenant).pk))
