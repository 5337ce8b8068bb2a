"""Every route accepts exactly the query parameters in the document."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.test import RequestFactory
from rest_framework.request import Request

from gateway import ids
from gateway.api import query
from gateway.api.errors import InvalidRequest
from gateway.api.viewsets import DeclaredQuery, declared_query
from tenants.credentials import api_keys
from tests.api_contract.authorisation import Route, registered_routes
from tests.api_contract.contract import DOCUMENT
from tests.fixtures import Api, assert_error

OPEN_ROUTES = {"GET /v1/health", "GET /v1/health/live", "GET /v1/health/ready"} | {
    "GET /v1/openapi.json",
    "GET /v1/openapi.yaml",
}
"""Routes to which health probes and client generators may add parameters."""
ROUTES = [route for route in registered_routes() if route.name not in OPEN_ROUTES]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_route_accepts_the_parameters_that_the_document_declares(route: Route) -> None:
    assert issubclass(route.view, DeclaredQuery), "derive the view from gateway.api.viewsets.ResourceViewSet"
    assert route.action is not None
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    documented = {item["name"] for item in operation.get("parameters", []) if item["in"] == "query"}
    assert set(declared_query(route.view, route.action)) == documented


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (
            "external_reff=a",
            "This query parameter is unknown. Did you mean external_ref? The known ones are: cursor,",
        ),
        (
            "status=active",
            "This query parameter is unknown. The known ones are: cursor, external_ref, limit.",
        ),
        ("external_ref=a&external_ref=b", "only once"),
        ("external_ref=", "is empty"),
        ("external_ref=%00", "U+0000"),
        ("external_ref=" + "x" * 256, "at most 255 characters"),
    ],
)
def test_a_query_parameter_that_means_nothing_is_refused(
    app_key: api_keys.NewKey, query: str, problem: str
) -> None:
    error = assert_error(Api(app_key.key).get(f"/v1/tenants?{query}"), 400, "invalid_request")
    ((name, (sentence,)),) = error["details"]["fields"].items()
    assert query.startswith(name)
    assert problem in sentence


RANGED = [
    path
    for path, operations in DOCUMENT["paths"].items()
    if {"from", "to"} <= {item["name"] for item in operations.get("get", {}).get("parameters", [])}
]
"""Every path whose response covers a time range."""


@pytest.mark.django_db
@pytest.mark.parametrize("path", RANGED)
def test_a_range_that_ends_before_it_begins_is_refused(api: Api, path: str) -> None:
    """An empty list would look as if nothing had happened in that time."""
    error = assert_error(
        api.get(f"{path}?from=2026-11-02T00:00:00Z&to=2026-11-01T23:59:59Z"), 400, "invalid_request"
    )
    assert error["details"]["fields"] == {"from": ["Must not be after `to`."]}


@pytest.mark.django_db
def test_a_range_may_have_one_end_or_none(api: Api) -> None:
    for bounds in ("from=2026-11-02T00:00:00Z", "to=2026-11-02T00:00:00Z", ""):
        assert api.get(f"/v1/events?{bounds}").status_code == 200
    both = "from=2026-11-02T00:00:00Z&to=2026-11-02T05:30:00%2B05:30"
    assert api.get(f"/v1/events?{both}").status_code == 200, (
        "a range of two equal moments is empty, not reversed"
    )


@pytest.mark.django_db
def test_an_operation_without_parameters_says_so(api: Api) -> None:
    for name in ("name", "cls"):
        error = assert_error(api.post(f"/v1/api-keys?{name}=x", {"name": "x"}), 400, "invalid_request")
        assert error["details"]["fields"] == {
            name: ["This query parameter is unknown. This operation takes none."]
        }


@pytest.mark.django_db
def test_a_stranger_learns_nothing_of_parameters_and_paths(api: Api) -> None:
    nobody = Api(None)
    for path in ("/v1/tenants?x=1", "/v1/api-keys/no-uuid", "/v1/nothing", "/v1/tenant/"):
        assert_error(nobody.get(path), 401, "unauthorized")
    assert_error(Api("wb_live_" + "x" * 40).post("/v1/nothing", {}), 401, "unauthorized")
    for path in ("/v1/api-keys/no-uuid", "/v1/nothing"):
        assert_error(api.delete(path), 404, "not_found")


@pytest.mark.django_db
def test_a_uuid_in_a_path_may_be_upper_case(api: Api, key: api_keys.NewKey) -> None:
    assert api.post(f"/v1/api-keys/{str(key.row.id).upper()}/rotate").status_code == 201


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "likely"),
    [
        ("/v1/tenant/", "Did you mean /v1/tenant?"),
        ("/messages", "Did you mean /v1/messages?"),
        ("/v1/message", "Did you mean /v1/messages?"),
        ("/v1/Numbers", "Did you mean /v1/numbers?"),
        ("/v1//numbers", "Did you mean /v1/numbers?"),
        ("/api/v1/numbers/1/Health/", "Did you mean /v1/numbers/1/health?"),
        ("/V1/Events/evt_01JD8A", "Did you mean /v1/events/evt_01JD8A?"),
        ("/v1/200300/messages", "Did you mean POST /v1/messages with the number as `from`?"),
        ("/v1/200300/messages/1", "There is nothing at /v1/200300/messages/1."),
        ("/nothing", "There is nothing at /nothing."),
    ],
)
def test_an_unknown_path_names_the_likely_one(api: Api, path: str, likely: str) -> None:
    assert assert_error(api.get(path), 404, "not_found")["message"].endswith(likely)


@pytest.mark.django_db
def test_a_browser_gets_a_page_for_an_unknown_path(api: Api) -> None:
    answer = api.get("/nothing", Accept="text/html,application/xhtml+xml")
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/html; charset=utf-8")


REFUSED = object()
_LONG = partial(query.text, longest=3)
_HOUR = partial(query.integer, least=2, most=23)
_WORDS = partial(query.choices, allowed=["read", "sent"])
_EVENT = partial(query.public_id, prefix=ids.EVENT)
_ID = UUID("01930d2c-0000-7000-8000-00000000000a")
_HALF_PAST_FOUR = datetime(2026, 11, 2, 4, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        *((query.flag, text, True) for text in ("true", "TRUE", "1")),
        *((query.flag, text, False) for text in ("false", "False", "0")),
        *((query.flag, text, REFUSED) for text in ("", "2", "yes", "on")),
        *((_HOUR, text, int(text)) for text in ("2", "02", "23")),
        *(
            (_HOUR, text, REFUSED)
            for text in ("1", "24", "", "-2", "+2", "2.0", " 2", "٣", "²", "0" * 18 + "2")
        ),
        *((_LONG, text, text) for text in ("", "abc", "äöü")),
        (_LONG, "abcd", REFUSED),
        (_WORDS, "read", ["read"]),
        (_WORDS, "sent, read ", ["sent", "read"]),
        *((_WORDS, text, REFUSED) for text in ("", "read,", "read;sent", "read,gone", "Read")),
        *((query.uuid, text, _ID) for text in (str(_ID), str(_ID).upper(), _ID.hex)),
        *((query.uuid, text, REFUSED) for text in ("", "1", f"{_ID}0")),
        (_EVENT, ids.encode(ids.EVENT, _ID), _ID),
        *((_EVENT, text, REFUSED) for text in ("", "evt_", str(_ID), ids.encode(ids.BATCH, _ID))),
        (query.moment, "2026-11-02T10:00:00+05:30", _HALF_PAST_FOUR),
        (query.moment, "2026-11-02T10:00:00 05:30", _HALF_PAST_FOUR),
        (query.moment, "2026-11-02T04:30:00", _HALF_PAST_FOUR),
        (query.moment, "9000-12-31T23:59:59Z", datetime(9000, 12, 31, 23, 59, 59, tzinfo=UTC)),
        *((query.moment, text, REFUSED) for text in ("9001-01-01T00:00:00Z", "", "2026-13-02", "1793500000")),
        *((query.moment, text, REFUSED) for text in ("2026-11-02", "20261102")),
    ],
)
def test_a_query_parameter_is_read_or_named_as_wrong(
    read: Callable[[Request, str], Any], text: str, value: object
) -> None:
    request = Request(RequestFactory().get("/", {"name": text}))
    if value is not REFUSED:
        assert read(request, "name") == value
        return
    with pytest.raises(InvalidRequest) as refused:
        read(request, "name")
    assert list(dict(refused.value.details or {})["fields"]) == ["name"]


@pytest.mark.parametrize("read", [query.flag, _HOUR, _LONG, _WORDS, query.uuid, _EVENT, query.moment])
def test_a_query_parameter_that_is_absent_has_no_value(read: Callable[[Request, str], Any]) -> None:
    assert not read(Request(RequestFactory().get("/")), "name")


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        *(
            (text, "919812345678")
            for text in (
                "919812345678",
                "+91 98123 45678",
                " 91 98123 45678",
                "(91)-98123.45678",
                "91\u00a09812345678",
            )
        ),
        ("9" * 20, "9" * 20),
        *(
            (text, None)
            for text in ("9" * 21, "", "+", "++919812345678", "91+9812345678", "IN.1", "٩٨", "91/98")
        ),
    ],
)
def test_a_customers_number_is_read_in_every_usual_form(text: str, digits: str | None) -> None:
    assert query.phone_digits(text) == digits
