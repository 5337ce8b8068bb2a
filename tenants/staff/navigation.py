"""The side bar of the staff admin: groups of links, to which each app adds those of its own pages."""

from typing import Any, Literal, NamedTuple, get_args

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

Group = Literal["Businesses", "Messaging", "Webhooks", "Billing", "Staff"]


class NavigationLink(NamedTuple):
    """A link: its text, its icon (Material Symbols), the admin's view, and a filter of its list."""

    title: str
    icon: str
    view: str
    query: str = ""


_links: dict[Group, list[NavigationLink]] = {group: [] for group in get_args(Group)}


def register_navigation(group: Group, *links: NavigationLink) -> None:
    """Add an app's links to a group, behind those of the apps before it."""
    _links[group].extend(links)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The theme's side bar: the links whose pages are registered."""
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
