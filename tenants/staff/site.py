"""The site of the staff admin: access, registered models, side bar, and content security policy."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args
from zoneinfo import ZoneInfo

from allauth.account.decorators import secure_admin_login
from csp.decorators import csp_replace
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.templatetags.static import static
from django.urls import NoReverseMatch, path, reverse
from django.utils import timezone
from django.utils.text import capfirst
from unfold.sites import UnfoldAdminSite

from tenants.credentials.log_in import lacks_second_factor
from tenants.labels import NOTHING, spelled
from tenants.models import User
from tenants.staff import search
from tenants.staff.roles import OWN_APPS

# --- The side bar of the staff admin: groups of links. Each app adds links to its own pages.

View = TypeVar("View", bound=Callable[..., HttpResponseBase])
Group = Literal["Businesses", "Messaging", "Webhooks", "Billing", "Staff"]


class NavigationLink(NamedTuple):
    """A link of the side bar: its text, its icon (Material Symbols), the name of the admin's view, and a query that
    filters its list.
    """

    title: str
    icon: str
    view: str
    query: str = ""


_links: dict[Group, list[NavigationLink]] = {group: [] for group in get_args(Group)}


def register_navigation(group: Group, *links: NavigationLink) -> None:
    """Add an app's links to a group, after those of earlier apps."""
    _links[group].extend(links)


_pages: list[tuple[str, Callable[..., HttpResponseBase], str]] = []


def register_page(route: str, name: str) -> Callable[[View], View]:
    """Add a page without a model: its route below /admin/ and its name."""

    def registered(view: View) -> View:
        _pages.append((route, view, name))
        return view

    return registered


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The theme's side bar. A link whose page is not registered is left out."""
    groups = []
    for title, links in _links.items():
        items = []
        for link in links:
            try:
                path = reverse(link.view)
            except NoReverseMatch:
                continue
            queue = request.GET.get("status__exact") == "pending_approval"
            here = request.path == path if link.view == "admin:index" else request.path.startswith(path)
            active = here and (link.view != "admin:tenants_tenant_changelist" or queue == bool(link.query))
            items.append(
                {"title": link.title, "icon": link.icon, "link": path + link.query, "active": active}
            )
        groups.append({"title": title, "items": items})
    return groups


ADMIN_CSP = {
    "script-src": ["'self'", "'unsafe-inline'", "'unsafe-eval'"],
    "style-src": ["'self'", "'unsafe-inline'"],
}
"""The admin's theme evaluates scripts in attributes (Alpine) and uses inline styles. Only pages under /admin allow
this.
"""


class StaffSite(UnfoldAdminSite):  # type: ignore[misc]
    """The admin's site. It requires a log-in in the console, and also a second factor when
    STAFF_SECOND_FACTOR is on.
    """

    index_title = "Overview"
    enable_nav_sidebar = True

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self.empty_value_display = NOTHING

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register only the service's own models. Admin pages of other packages may show secrets, such as TOTP
        secrets.
        """
        models: list[Any] = (
            list(model_or_iterable) if isinstance(model_or_iterable, Iterable) else [model_or_iterable]
        )
        own = [model for model in models if model._meta.app_label in OWN_APPS]
        for model in own:
            _spell_labels(model)
        super().register(own, admin_class, **options)

    def has_permission(self, request: HttpRequest) -> bool:
        return super().has_permission(request) and not lacks_second_factor(cast("User", request.user))

    def get_urls(self) -> list[Any]:
        own = [
            path("find/", self.admin_view(self.find), name="staff_search"),
            *(path(route, self.admin_view(view), name=name) for route, view, name in _pages),
        ]
        return [*own, *super().get_urls()]

    def find(self, request: HttpRequest) -> HttpResponseBase:
        """Search all apps."""
        return search.response(request, self.each_context(request))

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        if request.user.is_authenticated and lacks_second_factor(request.user):
            return HttpResponseRedirect(reverse("mfa_index"))
        guarded: HttpResponseBase = secure_admin_login(super().login)(request, extra_context)
        return guarded

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        return csp_replace(ADMIN_CSP)(_reloading(_in_own_zone(super().admin_view(view, cacheable))))


def _spell_labels(model: Any) -> None:
    """Capitalise acronyms in the labels of a model and its columns. Django would write "Waba ids"."""
    names = model._meta
    for named in (*names.concrete_fields, *names.many_to_many):
        named.verbose_name = capfirst(spelled(str(named.verbose_name)))
    names.verbose_name = spelled(str(names.verbose_name))
    names.verbose_name_plural = spelled(str(names.verbose_name_plural))


def _in_own_zone(view: Any) -> Any:
    """Wrap a view so that it shows times in the zone of the staff member who reads it."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with timezone.override(ZoneInfo(getattr(request.user, "time_zone", "UTC"))):
            response: HttpResponseBase = view(request, *args, **kwargs)
            # The response is rendered here, because later rendering would use another zone.
            return response.render() if isinstance(response, SimpleTemplateResponse) else response

    return answered


def _reloading(view: Any) -> Any:
    """Wrap a view so that a redirect of a dialog's request, such as to the log-in, reloads the whole page."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response: HttpResponseBase = view(request, *args, **kwargs)
        if response.status_code == 302 and request.headers.get("HX-Request"):
            return HttpResponse(headers={"HX-Refresh": "true"})
        return response

    return answered


def stylesheet(request: HttpRequest) -> str:
    """The stylesheet that the admin adds to its theme."""
    return static("console/staff.css")


def favicon(request: HttpRequest) -> str:
    """The icon of the console."""
    return static("console/favicon.svg")


def script(request: HttpRequest) -> str:
    """The script of the admin's pages."""
    return static("console/staff.js")


def environment_badge(request: HttpRequest) -> list[str]:
    """The text and the colour of the badge in the admin's corner."""
    return ["Production", "danger"] if settings.PRODUCTION else ["Development", "info"]
