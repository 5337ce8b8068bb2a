"""Staff search, tenant pages and links of the audit log. Each app adds finders, which return hits, lines of a tenant's
page, and the pages of its rows that audit entries name.

A finder looks up exact indexed values, or a part of a text in a small table. It runs only for staff who may see its
model.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Model, Q
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from gateway import ids
from tenants.credentials.api_keys import PREFIX_CHARACTERS
from tenants.models import ApiKey, AuditEntry, EmailDomainRule, PlatformApp, Tenant, User
from tenants.staff.dialogs import change_url

MOST_HITS = 10
"""The maximum number of hits of one finder."""
LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Hit:
    """A result of the search."""

    kind: str
    title: str
    note: str
    url: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a tenant's page, such as the number of the tenant's keys with a link to them."""

    title: str
    text: str
    url: str = ""


Finder = Callable[[str], Iterable[Hit]]
Lines = Callable[[Tenant], Iterable[Line]]

_finders: list[tuple[str, Finder]] = []
_lines: list[tuple[str, Lines]] = []
_targets: dict[str, tuple[type[Model], str]] = {}


def register_finder(permission: str) -> Callable[[Finder], Finder]:
    """Add a finder for staff with a permission."""

    def registered(finder: Finder) -> Finder:
        _finders.append((permission, finder))
        return finder

    return registered


def register_lines(permission: str) -> Callable[[Lines], Lines]:
    """Add lines to the page of a tenant, for staff with a permission."""

    def registered(lines: Lines) -> Lines:
        _lines.append((permission, lines))
        return lines

    return registered


def register_target(target_type: str, model: type[Model], column: str = "pk") -> None:
    """Add the model whose rows the audit entries of a target type name. `column` has the ids that they name."""
    _targets[target_type] = model, column


def target_url(target_type: str, target_id: str) -> str | None:
    """The page of an audit entry's target, or else the list with only the target. None for a type without a page.

    Does not read whether the target still exists.
    """
    if target_type not in _targets:
        return None
    model, column = _targets[target_type]
    if column == "pk":
        named = ids.decode(model.id_prefix, target_id) if issubclass(model, ids.PublicId) else target_id
        return change_url(model, named or target_id)
    names = model._meta
    changelist = reverse(f"admin:{names.app_label}_{names.model_name}_changelist")
    return f"{changelist}?{urlencode({column: target_id})}"


def find(user: Any, text: str) -> list[Hit]:
    """The hits for a text, limited to those that the staff member may see."""
    wanted = text.strip()[:LONGEST_TEXT]
    if len(wanted) < 2:
        return []
    return [
        hit
        for permission, finder in _finders
        if user.has_perm(permission)
        for hit in islice(finder(wanted), MOST_HITS)
    ]


def response(request: HttpRequest, context: dict[str, Any]) -> HttpResponseBase:
    """The page of results for `?q=`. A single hit redirects to its page."""
    asked = request.GET.get("q", "")
    hits = find(request.user, asked)
    if len(hits) == 1:
        return HttpResponseRedirect(hits[0].url)
    context = {**context, "title": "Search", "asked": asked, "hits": hits}
    return TemplateResponse(request, "admin/search.html", context)


def lines_of(user: Any, tenant: Tenant) -> Iterator[Line]:
    """The lines of a tenant's page that the staff member may see."""
    for permission, lines in _lines:
        if user.has_perm(permission):
            yield from lines(tenant)


# --- Finders of tenants, users, API keys and platform apps, and their lines on a tenant's page.


def uuid_of(text: str) -> UUID | None:
    """Parse a UUID. None when the text is not a UUID."""
    try:
        return UUID(text)
    except ValueError:
        return None


@register_finder("tenants.view_tenant")
def _tenants(text: str) -> Iterator[Hit]:
    named = Q(name__icontains=text) | Q(contact_email__icontains=text) | Q(website__icontains=text)
    exact = Q(tax_id__iexact=text) | Q(external_ref=text)
    if key := uuid_of(text):
        exact |= Q(pk=key)
    for tenant in Tenant.objects.filter(named | exact).order_by("-id")[:10]:
        note = ", ".join(filter(None, (tenant.get_status_display(), tenant.contact_email, tenant.website)))
        yield Hit("Tenant", tenant.name, note, change_url(Tenant, tenant.pk))


@register_finder("tenants.view_user")
def _people(text: str) -> Iterator[Hit]:
    for user in User.objects.filter(email__icontains=text).select_related("tenant").order_by("email")[:10]:
        note = user.tenant.name if user.tenant else "Staff" if user.is_staff else ""
        yield Hit("Person", user.email, note, change_url(User, user.pk))


@register_finder("tenants.view_apikey")
def _keys(text: str) -> Iterator[Hit]:
    key = uuid_of(text)
    if not text.startswith("wb_") and key is None:
        return
    named = Q(pk=key) if key else Q(prefix__startswith=text[:PREFIX_CHARACTERS])
    for row in ApiKey.objects.filter(named).select_related("tenant", "app")[:10]:
        owner = row.tenant or row.app
        yield Hit("API key", f"{row.prefix}…", f"{row.name}, {owner}", change_url(ApiKey, row.pk))


@register_finder("tenants.view_platformapp")
def _apps(text: str) -> Iterator[Hit]:
    named = Q(name__icontains=text)
    if key := uuid_of(text):
        named |= Q(pk=key)
    for app in PlatformApp.objects.filter(named)[:10]:
        yield Hit("Platform app", app.name, str(app.pk), change_url(PlatformApp, app.pk))


@register_lines("tenants.view_apikey")
def _key_lines(tenant: Tenant) -> Iterator[Line]:
    keys = ApiKey.objects.for_tenant(tenant.id).filter(revoked_at=None).count()
    yield Line("API keys", str(keys), f"{reverse('admin:tenants_apikey_changelist')}?q={tenant.id}")


@register_lines("tenants.view_user")
def _people_lines(tenant: Tenant) -> Iterator[Line]:
    people = User.objects.filter(tenant=tenant, is_active=True).order_by("email")
    for user in people[:10]:
        yield Line("Person", f"{user.email} ({user.get_role_display()})", change_url(User, user.pk))


@register_lines("tenants.view_auditentry")
def _audit_lines(tenant: Tenant) -> Iterator[Line]:
    if AuditEntry.objects.filter(tenant_id=tenant.id).exists():
        yield Line(
            "Audit log", "everything", f"{reverse('admin:tenants_auditentry_changelist')}?q={tenant.id}"
        )


register_target("tenant", Tenant)
register_target("user", User)
register_target("api_key", ApiKey)
register_target("app", PlatformApp)
register_target("email_domain", EmailDomainRule)
