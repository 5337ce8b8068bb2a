"""Every route accepts exactly the query parameters in the document."""

import pytest

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
        ("/nothing", "There is nothing at /nothing."),
    ],
)
def test_an_unknown_path_names_the_likely_one(api: Api, path: str, likely: str) -> None:
    assert assert_error(api.get(path), 404, "not_found")["message"].endswith(likely)


@pytest.mark.django_db
def test_a_browser_gets_a_page_for_an_unknown_path(api: Api) -> None:
    answer = api.get("/nothing", Accept="text/html,application/xhtml+xml")
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/html; charset=utf-8")
