"""Any text in place of an id in a path gets the service's own 404."""

import re
from typing import Any

import pytest

from tests.api_contract.authorisation import ROWS, Route, registered_routes
from tests.fixtures import Api, assert_error

ROUTES = [route for route in registered_routes() if "{" in route.path and route.kind == "tenant"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@pytest.mark.parametrize("name", ["%00", "%F0%9F%98%80", "x" * 3000])
def test_a_name_that_cannot_be_is_404(api: Api, route: Route, name: str, settings: Any) -> None:
    settings.BILLING_ENABLED = True
    path = re.sub(r"{\w+}", name, route.path)
    assert_error(api.request(route.method, path, dict(ROWS[route.name].body)), 404, "not_found")
