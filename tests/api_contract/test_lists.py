"""Every paged list, with each of its filters and several page sizes, while rows are added between the pages.

Each list has the rows of its owner, of another tenant and of the other environment. The expected rows of a filter are
those that were created with its value, in the order of their ids.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db.models import Model
from pytest_django import Settings

from billing.models import Invoice
from gateway import ids as public_ids
from gateway.api.viewsets import declared_query
from gateway.clock import now
from gateway.request_log.models import ApiRequest
from messaging.models import Batch, BatchItem, Erasure, MessageTemplate, OptOut, ScheduledMessage
from phone_numbers.models import BusinessAccount, PhoneNumber
from tenants import platform_apps
from tenants.credentials import api_keys, bearer_tokens
from tenants.models import ApiKey, AuditEntry, PlatformApp, Tenant, User
from tests.api_contract.authorisation import ROWS, Route, World, registered_routes
from tests.fixtures import Api
from webhooks.models import Delivery, Endpoint, Event, Message

pytestmark = pytest.mark.django_db

OWN, NEW = 8, 2
"""The number of the owner's rows, and the number of rows that are added while a list is read."""
PAGING = {"limit", "cursor"}
SPAN = {"from", "to"}
Make = Callable[[World, Mapping[str, Any], int], Any]


@dataclass(frozen=True)
class Listing:
    """How to create a row of a list, and the values that its filters distinguish."""

    make: Make
    """Creates a row with these values of the filters, and a number that no other row has. Returns the row's key."""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Two values of each filter. The rows have all combinations of the values."""
    unique: Mapping[str, Callable[[int], str]] = field(default_factory=dict)
    """Filters whose value is different in each row."""
    shown: Callable[[Any], Any] = lambda row: row["id"]
    """Returns the key of a row in a response. It is the key that `make` returned."""
    others: frozenset[str] = frozenset()
    """Parameters that are not filters."""
    only: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Filters that apply only to rows with a certain value of another filter."""
    is_ascending: bool = False
    parent: Callable[[World], str] = lambda world: ""
    """Creates the object in the path of the list. Returns its id."""
    is_of_both: bool = False
    """Whether both environments have the same rows."""


def scope(world: World) -> dict[str, Any]:
    return {"tenant_id": world.tenant.id, "environment": world.environment}


def made_by(name: str, part: str, model: type[Model]) -> Make:
    """Return a function that creates a row as in the authorisation matrix, then sets the columns of the filters."""

    def make(world: World, values: Mapping[str, Any], number: int) -> Any:
        create = ROWS[name].ids
        assert create is not None
        shown = create(world)[part]
        if values:
            row = model._default_manager.order_by("-id").first()
            assert row is not None
            model._default_manager.filter(pk=row.pk).update(**values)
        return str(shown)

    return make


def event(world: World, values: Mapping[str, Any], number: int) -> str:
    row = Event.objects.create(
        **scope(world), **values, dedupe_key=str(public_ids.uuid7()), payload_expires_on="2030-01-01"
    )
    return row.public_id


TIMES = {"failed": "failed_at", "read": "read_at"}


def message(world: World, values: Mapping[str, Any], number: int) -> str:
    columns = dict(values)
    row_id, key = public_ids.uuid7(), f"wamid.{number}"
    if columns["direction"] == "outbound":
        columns[TIMES[columns.pop("status")]] = now()
    else:
        columns.pop("status")
    columns["batch_id"] = public_ids.decode(public_ids.BATCH, columns["batch_id"])
    Message.objects.create(**scope(world), **columns, id=row_id, key=key, month=public_ids.month_of(row_id))
    return key


def delivery(world: World, values: Mapping[str, Any], number: int) -> str:
    columns = dict(values)
    columns["last_http_status"] = int(columns.pop("http_status"))
    columns["event_id"] = public_ids.decode(public_ids.EVENT, columns["event_id"])
    return Delivery.objects.create(**scope(world), **columns).public_id


def request_log(world: World, values: Mapping[str, Any], number: int) -> str:
    columns = {**values, "status": {"409": 409, "2xx": 204}[values["status"]]}
    row = ApiRequest.objects.create(
        id=public_ids.uuid7(), **scope(world), **columns, own_ms=1.0, upstream_ms=0.0
    )
    return row.public_id


def template(world: World, values: Mapping[str, Any], number: int) -> str:
    columns = dict(values)
    waba_id, phone_number_id = columns.pop("waba_id"), columns.pop("from")
    accounts = BusinessAccount.objects.for_environment(world.tenant.id, world.environment)
    account = accounts.filter(waba_id=waba_id).first()
    if account is None:
        # The ids of accounts and numbers are unique, so a neighbour needs other ids.
        end = str(number) if BusinessAccount.objects.filter(waba_id=waba_id).exists() else ""
        owned: dict[str, Any] = {"tenant": world.tenant, "environment": world.environment}
        account = BusinessAccount.objects.create(**owned, waba_id=waba_id + end, access_token="EAAx")
        PhoneNumber.objects.create(**owned, account=account, phone_number_id=phone_number_id + end)
    columns["name"] += f"_{number}"
    template_id = str(number)
    MessageTemplate.objects.create(
        tenant=world.tenant,
        environment=world.environment,
        account=account,
        template_id=template_id,
        **columns,
        document=json.dumps({"id": template_id, **columns, "components": []}),
        changed_at=now(),
    )
    return template_id


def opt_out(world: World, values: Mapping[str, Any], number: int) -> str:
    columns = dict(values)
    is_reported = columns.pop("source") == "whatsapp"
    customer = f"9198000{number:05}"
    OptOut.objects.create(
        **scope(world),
        **columns,
        id=public_ids.uuid7(),
        customer=customer,
        wa_id=customer,
        reported_stop=is_reported,
        reported_at=now(),
        wrote_stop=not is_reported,
        wrote_at=now(),
    )
    return customer


def _batch_of_items(world: World) -> Batch:
    batch, _ = Batch.objects.get_or_create(
        **scope(world),
        client_ref=f"items of {world.environment}",
        defaults={"phone_number_id": "1", "total": 1, "rate_per_sec": 80},
    )
    return batch


def items_of(world: World) -> str:
    """Create the batch for the path of the list. Returns its id."""
    return _batch_of_items(world).public_id


def batch_item(world: World, values: Mapping[str, Any], number: int) -> int:
    batch = _batch_of_items(world)
    return BatchItem.objects.create(batch=batch, idx=number, body=b"{}", **values).idx


OF_APPS, OF_TENANTS = "wb_live_aaaaaaaa", "wb_live_bbbbbbbb"


def any_key(world: World, values: Mapping[str, Any], number: int) -> str:
    """Create a key. If the prefix is `OF_APPS`, the key belongs to a platform app, otherwise to a tenant."""
    if values["prefix"] == OF_APPS:
        owner: dict[str, Any] = {"app": PlatformApp.objects.get_or_create(id=values["app_id"])[0]}
    else:
        owner = {"tenant": Tenant.objects.get_or_create(id=values["tenant_id"])[0]}
    row = api_keys.create(name=str(number), environment="live", **owner).row
    ApiKey.objects.filter(pk=row.pk).update(prefix=values["prefix"])
    return str(row.pk)


def audit_entry(world: World, values: Mapping[str, Any], number: int) -> str:
    entry = AuditEntry.objects.create(**values, target_type="tenant", target_id=str(number))
    return str(entry.pk)


def tenant_of_app(world: World, values: Mapping[str, Any], number: int) -> str:
    return str(Tenant.objects.create(name=f"Shop {number}", app=world.app, status="active", **values).id)


def any_tenant(world: World, values: Mapping[str, Any], number: int) -> str:
    return str(Tenant.objects.create(name=f"Shop {number}", **values).id)


def uuids(prefix: str) -> tuple[str, str]:
    return tuple(public_ids.encode(prefix, public_ids.uuid7()) for _ in range(2))  # type: ignore[return-value]


def some_uuids() -> tuple[str, str]:
    return str(public_ids.uuid7()), str(public_ids.uuid7())


CUSTOMERS = ("919812345678", "919812345679")
TYPES = ("message.inbound", "message.status")
LISTS: dict[str, Listing] = {
    "GET /v1/events": Listing(
        event,
        {
            "type": TYPES,
            "phone_number_id": ("1", "2"),
            "waba_id": ("11", "12"),
            "wamid": ("wamid.1", "wamid.2"),
            "wa_id": CUSTOMERS,
            "user_id": ("IN.1", "IN.2"),
        },
    ),
    "GET /v1/messages": Listing(
        message,
        {
            "direction": ("outbound", "inbound"),
            "status": ("read", "failed"),
            "phone_number_id": ("1", "2"),
            "wa_id": CUSTOMERS,
            "user_id": ("IN.1", "IN.2"),
            "template": ("order", "parcel"),
            "batch_id": uuids(public_ids.BATCH),
            "referral_source_id": ("7", "8"),
        },
        only={"status": ("direction", "outbound")},
    ),
    "GET /v1/webhook-deliveries": Listing(
        delivery,
        {
            "status": ("delivered", "dead"),
            "event_type": TYPES,
            "http_status": ("200", "503"),
            "event_id": uuids(public_ids.EVENT),
            "endpoint_id": some_uuids(),
        },
    ),
    "GET /v1/requests": Listing(
        request_log,
        {
            "method": ("GET", "POST"),
            "status": ("409", "2xx"),
            "route": ("/v1/numbers", "/v1/messages/{message_id}"),
            "error_code": ("conflict", "not_found"),
            "key_prefix": ("wb_live_aaaaaaaa", "wb_live_bbbbbbbb"),
        },
    ),
    "GET /v1/templates": Listing(
        template,
        {
            "name": ("order", "parcel"),
            "status": ("APPROVED", "PAUSED"),
            "waba_id": ("11", "12"),
            "category": ("MARKETING", "UTILITY"),
            "language": ("en_US", "hi"),
            "from": ("101", "102"),
        },
    ),
    "GET /v1/messages/batch": Listing(
        made_by("GET /v1/messages/batch/{batch_id}", "batch_id", Batch),
        {"status": ("queued", "completed")},
        {"client_ref": "order-{}".format},
    ),
    "GET /v1/messages/batch/{batch_id}/items": Listing(
        batch_item,
        {"status": ("pending", "failed")},
        shown=lambda row: row["idx"],
        is_ascending=True,
        parent=items_of,
    ),
    "GET /v1/messages/scheduled": Listing(
        made_by("GET /v1/messages/scheduled/{scheduled_id}", "scheduled_id", ScheduledMessage),
        {"status": ("scheduled", "cancelled")},
    ),
    "GET /v1/opt-outs": Listing(
        opt_out,
        {"phone_number_id": ("1", "2"), "source": ("whatsapp", "stop_word")},
        shown=lambda row: row["wa_id"],
    ),
    "GET /v1/webhooks": Listing(
        made_by("GET /v1/webhooks/{endpoint_id}", "endpoint_id", Endpoint), unique={"uid": "mine-{}".format}
    ),
    "GET /v1/api-keys": Listing(made_by("DELETE /v1/api-keys/{key_id}", "key_id", ApiKey)),
    "GET /v1/erasures": Listing(
        made_by("GET /v1/erasures/{erasure_id}", "erasure_id", Erasure), is_of_both=True
    ),
    "GET /v1/billing/invoices": Listing(
        made_by("GET /v1/billing/invoices/{invoice_id}", "invoice_id", Invoice), is_of_both=True
    ),
    "GET /v1/platform-keys": Listing(
        made_by("DELETE /v1/platform-keys/{key_id}", "key_id", ApiKey), is_of_both=True
    ),
    "GET /v1/tenants": Listing(tenant_of_app, unique={"external_ref": "shop-{}".format}, is_of_both=True),
    "GET /v1/usage": Listing(
        tenant_of_app,
        shown=lambda row: row["tenant_id"],
        is_of_both=True,
        others=frozenset({"day", "month"}),
    ),
    "GET /v1/admin/tenants": Listing(any_tenant, {"status": ("active", "suspended")}),
    "GET /v1/admin/api-keys": Listing(
        any_key,
        {"prefix": (OF_APPS, OF_TENANTS), "app_id": some_uuids(), "tenant_id": some_uuids()},
        only={"app_id": ("prefix", OF_APPS), "tenant_id": ("prefix", OF_TENANTS)},
    ),
    "GET /v1/admin/apps": Listing(
        lambda world, values, number: str(platform_apps.create_app(name=str(number)).id)
    ),
    "GET /v1/admin/apps/{app_id}/keys": Listing(
        made_by("DELETE /v1/admin/apps/{app_id}/keys/{key_id}", "key_id", ApiKey)
    ),
    "GET /v1/admin/audit": Listing(
        audit_entry,
        {
            "action": ("tenant.approve", "tenant.suspend"),
            "tenant_id": some_uuids(),
        },
        shown=lambda row: str(row["id"]),
    ),
}


@dataclass
class Rows:
    """The rows of one list: those of its owner with the values of the filters, and those of neighbours."""

    listing: Listing
    world: World
    own: dict[Any, dict[str, str]] = field(default_factory=dict)
    """The filter values of the owner's rows by key, in the order of creation."""
    foreign: set[Any] = field(default_factory=set)
    number: int = 0

    def add(self, neighbour: World | None = None) -> None:
        """Add a row of the owner. For a neighbour, add a row with the values of the owner's last row."""
        if neighbour is None:
            self.number += 1
        world = neighbour or self.world
        values = {
            name: both[(self.number >> place % 3) & 1]
            for place, (name, both) in enumerate(self.listing.filters.items())
        }
        if neighbour is None or world.tenant != self.world.tenant:
            values |= {name: value(self.number) for name, value in self.listing.unique.items()}
        key = self.listing.make(world, values, next(_numbers))
        if neighbour is None:
            self.own[key] = values
        else:
            self.foreign.add(key)

    def expected(self, **filters: str) -> list[Any]:
        """Return the keys of the owner's rows with these values, in the order of the list."""
        keys = [key for key, values in self.own.items() if self.matches(values, filters)]
        return keys if self.listing.is_ascending else keys[::-1]

    def matches(self, values: Mapping[str, str], filters: Mapping[str, str]) -> bool:
        needed = dict(self.listing.only[name] for name in filters if name in self.listing.only)
        return all(values[name] == value for name, value in (needed | dict(filters)).items())


_numbers = itertools.count(1)


def parameters_of(route: Route) -> set[str]:
    return set(declared_query(route.view, route.action or ""))


PAGED = [route for route in registered_routes() if route.action and parameters_of(route) >= PAGING]


def test_every_paged_list_has_a_row_that_knows_its_filters() -> None:
    known = {name: {*listing.filters, *listing.unique, *listing.others} for name, listing in LISTS.items()}
    declared = {}
    for route in PAGED:
        filters = parameters_of(route) - PAGING
        declared[route.name] = filters - SPAN if filters >= SPAN else filters
    assert known == declared


@pytest.fixture
def world(db: None) -> World:
    app = platform_apps.create_app(name="Shop platform")
    tenant = Tenant.objects.create(name="Asha Traders", status="active")
    return World(tenant, app, Tenant.objects.create(name="Of the app", status="active"))


def caller_of(route: Route, world: World) -> Api:
    if route.kind == "app":
        return Api(platform_apps.create_app_key(app_id=world.app.id, name="k", environment="live").key)
    if route.kind == "staff":
        staff = User.objects.create_superuser("staff@service.example", "pw")
        return Api(bearer_tokens.open_session(staff).token)
    return Api(api_keys.create(name="k", environment="live", tenant=world.tenant).key)


def neighbours_of(route: Route, listing: Listing, world: World) -> list[World]:
    """Return the worlds whose rows the caller must never see."""
    if route.kind == "staff":
        return []
    app = platform_apps.create_app(name="Another platform")
    other = Tenant.objects.create(name="Bina Stores", status="active")
    environments: list[World] = [] if listing.is_of_both else [replace(world, environment="test")]
    return [replace(world, tenant=other, app=app, app_tenant=other), *environments]


class Walk:
    """Reads a list page by page, and adds rows of its owner between the pages."""

    def __init__(self, api: Api, path: str, rows: Rows) -> None:
        self.api, self.path, self.rows = api, path, rows

    def check(self, limit: int, **filters: str) -> list[Any]:
        """Check that the pages have each row with these values once, and no row of a neighbour. Returns the rows."""
        known, expected = set(self.rows.own), self.rows.expected(**filters)
        found = list(self.pages(limit, **filters))
        shown = [self.rows.listing.shown(row) for row in found]
        assert len(shown) == len(set(shown)), filters
        assert not self.rows.foreign & set(shown), filters
        assert [each for each in shown if each in known] == expected, filters
        return found

    def pages(self, limit: int, **filters: str) -> Iterator[Any]:
        cursor: dict[str, str] = {}
        for number in itertools.count():
            answer = self.api.get(f"{self.path}?{urlencode({'limit': limit, **filters, **cursor})}")
            assert answer.status_code == 200, answer.content
            page = answer.json()
            assert len(page["data"]) <= limit
            # With a filter, a page may end before it is known whether another row matches.
            assert page["data"] or number == 0 or filters, "a full last page has no cursor"
            yield from page["data"]
            if page["next_cursor"] is None:
                return
            cursor = {"cursor": page["next_cursor"]}
            if number < NEW:
                self.rows.add()


@pytest.mark.parametrize("route", PAGED, ids=lambda route: route.name)
def test_pages_have_each_row_of_the_filters_once_and_none_of_a_neighbour(
    route: Route, world: World, settings: Settings
) -> None:
    settings.BILLING_ENABLED = True
    listing = LISTS[route.name]
    neighbours = neighbours_of(route, listing, world)
    path = route.path.format(batch_id=listing.parent(world), app_id=world.app.id)
    rows = Rows(listing, world)
    for _ in range(OWN):
        rows.add()
        for neighbour in neighbours:
            rows.add(neighbour)
    walk = Walk(caller_of(route, world), path, rows)
    for limit in (1, 3, 200):
        found = walk.check(limit)
    for name in (*listing.filters, *listing.unique):
        values = {values[name]: None for values in rows.own.values()}
        for value in list(values)[:2]:
            assert walk.check(3, **{name: value})
    if parameters_of(route) >= SPAN and "created_at" in found[0]:
        _check_spans(walk, found)


def _check_spans(walk: Walk, found: Sequence[Any]) -> None:
    """Check that `from` includes its moment, and that `to` excludes its moment."""
    moment = found[len(found) // 2]["created_at"]
    shown = walk.rows.listing.shown
    for name, belongs in (("from", moment.__le__), ("to", moment.__gt__)):
        got = list(walk.pages(3, **{name: moment}))
        known = {shown(row) for row in found}
        assert [shown(row) for row in got if shown(row) in known] == [
            shown(row) for row in found if belongs(row["created_at"])
        ]
