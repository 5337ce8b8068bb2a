"""Base classes of the staff admin: rows are read only, and big tables are never counted.

Every app's `admin.py` uses these classes. The fields of a page are always listed explicitly, so a new column with a
secret is not shown by default.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from django.contrib.admin import AllValuesFieldListFilter, SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.timezone import localtime
from unfold import decorators
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator
from unfold.views import ChangeList

from gateway import ids
from gateway.clock import now
from tenants.labels import NOTHING, label
from tenants.models import Tenant, User

Method = TypeVar("Method", bound=Callable[..., Any])


def display(**options: Any) -> Callable[[Method], Method]:
    """The theme's `display`, typed: `description`, `label` (value → colour), `ordering`. An empty text shows as a
    dash.
    """

    def decorated(method: Method) -> Method:
        @wraps(method)
        def shown(*args: Any) -> Any:
            value = method(*args)
            return NOTHING if value is None or value == "" else value

        return cast("Method", decorators.display(**options)(shown))

    return decorated


def shown_moment(at: datetime) -> str:
    """A time in the zone of the staff member who reads it, to the second."""
    return date_format(localtime(at), "j M Y, H:i:s T")


class StatusLabel(NamedTuple):
    """A status for `display(label=…)`. A list shows a coloured label, and the page of a row shows plain text."""

    status: str
    text: str

    def __str__(self) -> str:
        return self.text


def status_label(
    colours: Mapping[str, str], column: str = "status", description: str = ""
) -> Callable[[Any, Any], StatusLabel]:
    """A status column that shows each label in the colour of its value."""

    @display(description=description or label(column), label=colours, ordering=column)
    def shown(model_admin: Any, row: Any) -> StatusLabel:
        return StatusLabel(getattr(row, column), getattr(row, f"get_{column}_display")())

    return shown


def row_name(description: str) -> Callable[[Any, Any], str]:
    """The first column of a list: the row's name or id. `description` is the heading."""

    @display(description=description)
    def shown(model_admin: Any, row: Any) -> str:
        return str(row)

    return shown


def tenant_link(tenant_id: UUID | None, name: str | None = None) -> str:
    """A link to a tenant's page in the admin."""
    if tenant_id is None:
        return ""
    return format_html(
        '<a class="text-link" href="{}">{}</a>',
        reverse("admin:tenants_tenant_change", args=[tenant_id]),
        name or tenant_id,
    )


def labelled(column: str, description: str = "") -> Callable[[Any, Any], str]:
    """A column of codes, such as Meta's codes, shown as labels."""

    @display(description=description or label(column), ordering=column)
    def shown(model_admin: Any, row: Any) -> str:
        return label(getattr(row, column))

    return shown


def person(column: str) -> Callable[[Any, Any], str]:
    """A column that stores the id of a staff member and shows the member's mail address."""

    @display(description=label(column))
    def shown(model_admin: Any, row: Any) -> str:
        found = User.objects.filter(pk=getattr(row, column)).values_list("email", flat=True).first()
        return found or ""

    return shown


def lines(texts: Iterable[str]) -> str:
    """Join texts, one per line."""
    return format_html_join(mark_safe("<br>"), "{}", ((text,) for text in texts))


class CodeFilter(AllValuesFieldListFilter):
    """A filter by the codes of a column, shown as labels."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": label(str(choice["display"]))}


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """A read-only table: nobody adds, changes or deletes rows, not even a superuser."""

    actions = None
    list_per_page = 50
    list_filter_submit = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        only_shown = obj is not None and not self.has_change_permission(request, obj)
        return (only_shown and self.fields) or super().get_readonly_fields(request, obj)


class TenantRowsAdmin(ReadOnlyAdmin):
    """A table whose rows belong to tenants."""

    list_select_related = ("tenant",)
    ordering = ("-pk",)
    search_fields: tuple[str, ...] = ("=tenant__id", "tenant__name")
    search_help_text = "Tenant ID or name"

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        """Add the tenant to the page title, because staff may have pages of many tenants open."""
        if row := options.get("obj"):
            context["subtitle"] = f"{row}, {row.tenant.name}"
        answer: HttpResponse = super().render_change_form(request, context, *args, **options)
        return answer

    @display(description="Tenant")
    def owner(self, row: Any) -> str:
        return tenant_link(row.tenant_id, row.tenant.name)


class PeriodFilter(SimpleListFilter):
    """The period that a list with time-ordered ids covers. It limits the rows that the database reads."""

    title = "period"
    parameter_name = "period"
    CHOICES = (("7", "7 days"), ("30", "30 days"), ("366", "a year"))

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.CHOICES

    def choices(self, changelist: Any) -> Iterator[Any]:
        for number, choice in enumerate(super().choices(changelist)):
            yield {**choice, "display": "24 hours"} if number == 0 else choice

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if request.GET.get("q"):
            return queryset
        days = int(value) if (value := self.value() or "1") in {"1", "7", "30", "366"} else 1
        return queryset.filter(pk__gte=ids.first_at(now() - timedelta(days=days)))


def _add_tenant_names(rows: Iterable[Any]) -> None:
    """Set `tenant_name` on rows with a tenant. A join is impossible: Citus cannot join the rows of its nodes with a
    table of the coordinator.
    """
    owned = [row for row in rows if hasattr(row, "tenant_id")]
    tenants = Tenant.objects.filter(pk__in={row.tenant_id for row in owned})
    names = dict(tenants.values_list("pk", "name"))
    for row in owned:
        row.tenant_name = names.get(row.tenant_id)


class _NewestFirst(ChangeList):  # type: ignore[misc]
    """The rows of a list in the only order that has an index. `sortable_by` hides the links to other orders, but does
    not disable the parameter `o`.
    """

    def get_ordering_field(self, field_name: str) -> None:
        return None

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        _add_tenant_names(self.result_list)


class HistoryAdmin(ReadOnlyAdmin):
    """A big, time-ordered table. It is always shown newest first, never counted, and searched only by indexed values.

    `id_searches` maps the prefix of a public id to the column to search. `uuid_column` is the column to search for a
    bare UUID.
    """

    paginator = InfinitePaginator
    show_full_result_count = False
    ordering = ("-id",)
    sortable_by = ()
    search_fields = ("id",)
    id_searches: dict[str, str] = {}
    uuid_column = ""

    @property
    def looks_back(self) -> bool:
        """Whether the list covers only the chosen period. If it does, an empty list says so."""
        return PeriodFilter in (self.list_filter or ())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _NewestFirst

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        _add_tenant_names([found] if found else [])
        return found

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        for prefix, column in self.id_searches.items():
            if (found := ids.decode(prefix, term)) is not None:
                return queryset.filter(**{column: found}), False
        try:
            value = UUID(term)
        except ValueError:
            return queryset.none(), False
        if not self.uuid_column:
            return queryset.none(), False
        return queryset.filter(**{self.uuid_column: value}), False

    @display(description="Tenant")
    def owner(self, row: Any) -> str:
        return tenant_link(row.tenant_id, row.tenant_name)

    @display(description="ID")
    def shown_id(self, row: Any) -> str:
        return str(row)

    @display(description="Created")
    def created(self, row: Any) -> str:
        return shown_moment(row.created_at)
