"""Staff admin of platform apps, keys, users, the audit log and the request log. The approval queue is in
`staff/approval_admin.py`.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, cast
from uuid import UUID

from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import Count, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.html import format_html
from django.utils.text import Truncator
from unfold.admin import ModelAdmin
from unfold.enums import ActionVariant
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from gateway import ids
from gateway.api.errors import Conflict
from gateway.request_log.models import ApiRequest
from gateway.roles import Role
from tenants import audit, platform_apps
from tenants.audit_labels import ACTIONS, action_words, said
from tenants.credentials import api_keys, bearer_tokens, log_in
from tenants.labels import label, milliseconds
from tenants.models import ApiKey, AuditEntry, EmailDomainRule, PlatformApp, Tenant, User
from tenants.shown_values import RowForm
from tenants.signup import screening
from tenants.staff import approval_admin as approval_admin
from tenants.staff import search
from tenants.staff.dialogs import DialogForm, action, change_url, dialog, done
from tenants.staff.read_only_admin import (
    HistoryAdmin,
    PeriodFilter,
    ReadOnlyAdmin,
    display,
    lines,
    tenant_link,
)
from tenants.staff.site import NavigationLink, register_navigation
from tenants.team import members

register_navigation(
    "Businesses",
    NavigationLink("Overview", "dashboard", "admin:index"),
    NavigationLink("Search", "search", "admin:staff_search"),
    NavigationLink(
        approval_admin.QUEUE,
        "pending_actions",
        "admin:tenants_tenant_changelist",
        "?status__exact=pending_approval",
    ),
    NavigationLink("Tenants", "storefront", "admin:tenants_tenant_changelist"),
    NavigationLink("Platform apps", "apps", "admin:tenants_platformapp_changelist"),
    NavigationLink("API keys", "key", "admin:tenants_apikey_changelist"),
    NavigationLink("Requests", "swap_horiz", "admin:request_log_apirequest_changelist"),
)
register_navigation(
    "Staff",
    NavigationLink("Audit log", "history", "admin:tenants_auditentry_changelist"),
    NavigationLink("People", "group", "admin:tenants_user_changelist"),
    NavigationLink("Email domains", "alternate_email", "admin:tenants_emaildomainrule_changelist"),
    NavigationLink("Documentation", "menu_book", "docs"),
)


class LostFactorForm(DialogForm):
    reason = forms.CharField(
        label="How you checked the person's identity",
        max_length=500,
        widget=UnfoldAdminTextInputWidget,
    )


class AppKeyForm(DialogForm):
    name = forms.CharField(max_length=200, widget=UnfoldAdminTextInputWidget)
    environment = forms.ChoiceField(choices=ApiKey.Environment.choices, widget=UnfoldAdminSelectWidget)


@admin.register(PlatformApp)
class PlatformAppAdmin(ModelAdmin):  # type: ignore[misc]
    """Platform apps. The dialog that creates a key shows the full key once."""

    list_display = ("name", "id", "tenant_count", "created_at")
    search_fields = ("name", "=id")
    search_help_text = "Name or ID"
    readonly_fields = ("id", "created_at")
    actions = None
    actions_detail = ("new_key",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Fields of an app. The form of a new app has no ID."""
        return ("name", "id", "created_at") if obj else ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[PlatformApp]:
        sandboxes = Q(tenants__in=Tenant.objects.sandboxes())
        counted = {"count": Count("tenants"), "sandboxes": Count("tenants", filter=sandboxes)}
        return cast("QuerySet[PlatformApp]", super().get_queryset(request).annotate(**counted))

    @display(description="Tenants")
    def tenant_count(self, app: Any) -> str:
        return f"{app.count}, {app.sandboxes} of {platform_apps.MOST_SANDBOX_TENANTS} sandboxes"

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: PlatformApp, form: Any, change: bool) -> None:
        made = platform_apps.create_app(name=obj.name, actor_user_id=request.user.pk)
        obj.pk, obj.created_at = made.pk, made.created_at

    def response_add(
        self, request: HttpRequest, obj: PlatformApp, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Redirect to the page of the new app, where its first key is created."""
        if "_addanother" in request.POST:
            return cast("HttpResponse", super().response_add(request, obj, post_url_continue))
        messages.success(request, f"{obj.name} is added. Create its first key here.")
        return HttpResponseRedirect(change_url(PlatformApp, obj.pk))

    def has_create_key_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("tenants.add_platformapp")

    @action(
        description="New key",
        permissions=["create_key"],
        icon="key",
        dialog=dialog("New key of this app", "The key is shown once, here.", "Create", AppKeyForm),
    )
    def new_key(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        new = platform_apps.create_app_key(
            app_id=object_id,  # type: ignore[arg-type]
            name=form.cleaned_data["name"],
            environment=form.cleaned_data["environment"],
            actor_user_id=request.user.pk,
        )
        return _shown_once(request, new)


def _shown_once(request: HttpRequest, new: api_keys.NewKey) -> HttpResponse:
    context = {"new": new, "next": change_url(ApiKey, new.row.pk)}
    response = render(request, "admin/app_key_created.html", context)
    response["Cache-Control"] = "no-store"
    return response


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = (
        "prefix",
        "name",
        "owner",
        "environment",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    list_filter = ("environment",)
    list_select_related = ("tenant", "app")
    search_fields = ("prefix", "name", "=tenant__id", "=app__id")
    search_help_text = "Prefix (the first 16 characters), name, tenant ID or app ID"
    fields = (
        "id",
        "prefix",
        "name",
        "owner",
        "environment",
        "scopes",
        "phone_number_ids",
        "replaces",
        "created_by_user_id",
        "created_by_key_id",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    ordering = ("-id",)
    actions_detail = ("rotate_key", "revoke_key")

    def has_rotate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("tenants.add_platformapp")

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("tenants.revoke_apikey")

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """The actions of a key. A revoked key has none. Staff rotate only keys of platform apps, because a tenant
        rotates its own keys.
        """
        key = self.get_object(request, object_id)
        possible = {"revoke_key"} if key and key.revoked_at is None else set()
        if possible and key and key.app_id:
            possible.add("rotate_key")
        offered = super().get_actions_detail(request, object_id)
        return [entry for entry in offered if entry.method.original_function_name in possible]

    @action(
        description="Rotate",
        permissions=["rotate"],
        icon="autorenew",
        dialog=dialog(
            "Rotate this key?",
            "The old key works for another 24 hours. The new key is shown here, once.",
            "Rotate",
        ),
    )
    def rotate_key(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        app_keys = ApiKey.objects.filter(app__isnull=False)
        new = api_keys.rotate(keys=app_keys, key_id=UUID(object_id), actor_user_id=request.user.pk)
        return _shown_once(request, new)

    @action(
        description="Revoke",
        permissions=["revoke"],
        icon="block",
        variant=ActionVariant.DANGER,
        dialog=dialog(
            "Revoke this key?",
            "It stops working everywhere within 10 seconds. This cannot be undone.",
            "Revoke",
        ),
    )
    def revoke_key(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        key = api_keys.revoke(
            keys=ApiKey.objects.all(), key_id=UUID(object_id), actor_user_id=request.user.pk
        )
        return done(request, f"The key {key.prefix}… is revoked.", change_url(ApiKey, object_id))

    @display(description="Owner")
    def owner(self, key: ApiKey) -> str:
        return tenant_link(key.tenant_id, key.tenant.name) if key.tenant else f"App {key.app}"


class ActionFilter(SimpleListFilter):
    """Filter by action. The choices are the labelled actions, because a DISTINCT query would scan the whole log."""

    title = "action"
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return sorted(ACTIONS.items(), key=itemgetter(1))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(action=self.value()) if self.value() else queryset


@admin.register(AuditEntry)
class AuditAdmin(HistoryAdmin):
    """The audit log. A database trigger keeps it append-only."""

    list_display = ("created_at", "shown_action", "actor", "owner", "target", "change")
    list_filter = (ActionFilter,)
    fields = ("id", "created_at", "shown_action", "actor", "owner", "target", "details_lines")
    uuid_column = "tenant_id"
    search_help_text = "A tenant ID, or an action as the API names it, such as tenant.approve"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        person = User.objects.filter(pk=OuterRef("actor_user_id")).values("email")
        named: QuerySet[Any] = super().get_queryset(request).annotate(actor_email=person)
        return named

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if "." in search_term:
            return queryset.filter(action=search_term.strip()), False
        return super().get_search_results(request, queryset, search_term)

    @display(description="Action")
    def shown_action(self, entry: AuditEntry) -> str:
        return action_words(entry.action)

    @display(description="Target")
    def target(self, entry: AuditEntry) -> str:
        """The target's type and id, with a link to its page if the type has one."""
        kind, url = label(entry.target_type), search.target_url(entry.target_type, entry.target_id)
        if url is None:
            return format_html('<div>{} <span class="break-all">{}</span></div>', kind, entry.target_id)
        link = '<div>{} <a class="text-link break-all" href="{}">{}</a></div>'
        return format_html(link, kind, url, entry.target_id)

    @display(description="What changed")
    def change(self, entry: AuditEntry) -> str:
        return Truncator(", ".join(said(entry.details))).chars(160)

    @display(description="What changed")
    def details_lines(self, entry: AuditEntry) -> str:
        return lines(said(entry.details))

    @display(description="Actor")
    def actor(self, entry: Any) -> str:
        if key := entry.details.get("acting_key"):
            return f"API key {key}…"
        if entry.actor_user_id is None:
            return "The gateway"
        return str(entry.actor_email or f"Person {entry.actor_user_id} (removed)")


class EmailDomainRuleForm(RowForm):
    def clean_domain(self) -> str:
        """The domain in the form in which sign-ups look it up."""
        domain = screening.ascii_host(self.cleaned_data["domain"])
        if domain is None:
            raise ValidationError("Give a domain, such as example.com.")
        return domain


@admin.register(EmailDomainRule)
class EmailDomainRuleAdmin(ModelAdmin):  # type: ignore[misc]
    list_display = ("domain", "verdict", "note", "created_at")
    list_filter = ("verdict",)
    search_fields = ("domain",)
    search_help_text = "Domain"
    fields = ("domain", "verdict", "note")
    form = EmailDomainRuleForm
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The domain cannot change, because it is the key of its rule."""
        return ("domain",) if obj else ()

    def save_model(self, request: HttpRequest, obj: EmailDomainRule, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        _record(request, "email_domain.rule", "email_domain", obj.domain, {"verdict": obj.verdict})

    def delete_model(self, request: HttpRequest, obj: EmailDomainRule) -> None:
        _record(request, "email_domain.delete", "email_domain", obj.domain, {"verdict": obj.verdict})
        super().delete_model(request, obj)


IN_TEAM = {"tenant", "role", "is_active"}
"""The fields that decide what a person may do in a business."""
STAFF_RIGHTS = {"is_staff", "is_superuser", "groups"}
"""The fields that decide what a person may do as staff."""
SHOWN_TO_BUSINESS = ("email", "role", "is_active", "is_staff", "is_superuser")
"""The fields of a person whose former and new values the audit log of the business shows."""


class UserForm(RowForm):
    def clean_email(self) -> str:
        """The address as it is stored. The form then compares it with the addresses of the other users."""
        email: str = self.cleaned_data["email"]
        return email.lower()

    def clean(self) -> dict[str, Any]:
        """The values. A business keeps an owner, because only owners can change its team."""
        given = super().clean()
        former = self.initial.get("tenant") if self.instance.pk else None
        if former is None or not set(self.changed_data) & IN_TEAM:
            return given
        stays = given.get("tenant") is not None and given["tenant"].pk == former
        if not (stays and given.get("is_active") and given.get("role") == Role.OWNER):
            try:
                members.require_owner_besides(tenant_id=former, user_id=self.instance.pk)
            except Conflict as error:
                raise ValidationError(error.text) from None
        return given


@admin.register(User)
class UserAdmin(ModelAdmin):  # type: ignore[misc]
    """Users. A new user sets the first password with a link from /password/reset; staff never set one."""

    form = UserForm
    list_display = ("email", "tenant", "is_staff", "is_superuser", "is_active", "last_login")
    list_filter = ("is_staff", "is_active")
    list_select_related = ("tenant",)
    search_fields = ("email", "tenant__name", "=tenant__id")
    search_help_text = "Mail address, tenant name or tenant ID"
    fields = (
        "email",
        "tenant",
        "role",
        "is_active",
        "is_staff",
        "is_superuser",
        "groups",
        "last_login",
        "date_joined",
    )
    readonly_fields = ("last_login", "date_joined")
    autocomplete_fields = ("tenant",)
    ordering = ("-id",)
    actions = None
    actions_detail = ("remove_second_factor",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_remove_factor_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("tenants.change_user")

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Show the removal of second factors only for users who have one."""
        person = self.get_object(request, object_id)
        has_one = person is not None and Authenticator.objects.filter(user=person).exists()
        return super().get_actions_detail(request, object_id) if has_one else []

    @action(
        description="Second factor lost",
        permissions=["remove_factor"],
        icon="phonelink_erase",
        variant=ActionVariant.DANGER,
        dialog=dialog(
            "Remove the second factor?",
            "This also ends the password and all sessions. The person gets a mail to choose a new password.",
            "Remove it",
            LostFactorForm,
        ),
    )
    def remove_second_factor(self, request: HttpRequest, form: DialogForm, object_id: str) -> HttpResponse:
        person = log_in.remove(
            user_id=int(object_id), reason=form.cleaned_data["reason"], actor_user_id=request.user.pk
        )
        said = f"The second factor of {person.email} is removed. They get a mail to choose a new password."
        return done(request, said, change_url(User, object_id))

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        has_new_address = change and "email" in form.changed_data
        mails: tuple[dict[str, str | None], dict[str, str | None]] = ({}, {})
        if change:
            former = User.objects.get(pk=obj.pk)
            if former.tenant_id is not None:
                mails = members.change_by_staff(obj, former=former, actor_user_id=request.user.pk)
        else:
            obj.set_unusable_password()
        # The other columns may have changed meanwhile.
        obj.save(update_fields=set(form.changed_data) - {"groups"} if change else None)
        if has_new_address:
            log_in.use_address(obj)
        if change and set(form.changed_data) & STAFF_RIGHTS:
            bearer_tokens.close_sessions(obj)
        details: dict[str, Any] = {field: str(form.cleaned_data[field]) for field in form.changed_data}
        if "groups" in form.changed_data:
            details["groups"] = _names(form.cleaned_data["groups"])
        if change:
            # The business sees whom the change concerned, and what changed, but not the person's former business.
            before, after = (
                {name: values[name] for name in SHOWN_TO_BUSINESS}
                | {"groups": _names(values["groups"])}
                | addresses
                for values, addresses in zip((form.initial, form.cleaned_data), mails, strict=True)
            )
            moved = {name: value for name, value in details.items() if name == "tenant"}
            details = {"email": form.initial["email"], **moved, **audit.difference(before, after)}
        _record(request, "user.change" if change else "user.create", "user", obj.pk, details, obj.tenant_id)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "groups":
            kwargs["queryset"] = Group.objects.order_by("name")
            kwargs["widget"] = UnfoldAdminCheckboxSelectMultipleWidget
        return super().formfield_for_manytomany(db_field, request, **kwargs)


def _names(groups: Iterable[Group]) -> str:
    return ", ".join(sorted(group.name for group in groups))


def _record(
    request: HttpRequest,
    action: str,
    target_type: str,
    target_id: Any,
    details: dict[str, Any],
    tenant_id: UUID | None = None,
) -> None:
    audit.record(
        action=action,
        target_type=target_type,
        target_id=target_id,
        tenant_id=tenant_id,
        actor_user_id=request.user.pk,
        details=details,
    )


@admin.register(ApiRequest)
class ApiRequestAdmin(HistoryAdmin):
    """The request log, read only. It has calls without their bodies."""

    list_display = ("shown_id", "created", "method", "route", "status", "error_code", "owner")
    list_filter = (PeriodFilter, "environment")
    fields = (
        "shown_id",
        "created",
        "owner",
        "environment",
        "method",
        "route",
        "status",
        "error_code",
        "key_prefix",
        "shown_own",
        "shown_upstream",
    )
    id_searches = {ids.REQUEST: "id"}
    uuid_column = "tenant_id"
    search_help_text = "A request ID (req_…) or a tenant ID"

    @display(description="In the gateway")
    def shown_own(self, call: ApiRequest) -> str:
        return milliseconds(call.own_ms)

    @display(description="At Meta")
    def shown_upstream(self, call: ApiRequest) -> str:
        return milliseconds(call.upstream_ms)


@search.register_finder("request_log.view_apirequest")
def _requests(text: str) -> Iterator[search.Hit]:
    key = ids.decode(ids.REQUEST, ids.typed(text))
    for call in ApiRequest.objects.filter(pk=key) if key else ():
        code = f", {call.error_code}" if call.error_code else ""
        title = f"{call.method} {call.route or 'an unknown path'}: {call.status}{code}"
        yield search.Hit("Call", title, call.public_id, change_url(ApiRequest, call.pk))
