"""Whichever call of `/v1` Meta refuses for its token, the service checks the token, so that its numbers do not stay
connected while every send fails. `messaging/tests/test_graph_samples.py` does the same for the Cloud API paths.
"""

import pytest

from phone_numbers.models import BusinessAccount
from tenants import platform_apps
from tenants.models import Tenant
from tests.api_contract.authorisation import ROWS, World, registered_routes
from tests.fixtures import Api
from tests.scripted_graph import TOKEN_REFUSED, ScriptedGraph

LEAVING = {"DELETE /v1/numbers/{phone_number_id}", "DELETE /v1/accounts/{waba_id}"}
"""The account leaves the service with its token."""
ROUTES = [
    route for route in registered_routes() if route.kind == "tenant" and ROWS[route.name].ids is not None
]


@pytest.mark.django_db
def test_the_token_is_checked_whichever_call_meta_refuses_for_it(
    api: Api, tenant: Tenant, graph: ScriptedGraph
) -> None:
    graph.always_answers(TOKEN_REFUSED, status=401)
    world = World(tenant=tenant, app=platform_apps.create_app(name="Shop"), app_tenant=tenant)
    checked = {}
    for route in ROUTES:
        row = ROWS[route.name]
        assert row.ids is not None
        ids = row.ids(world)
        BusinessAccount.objects.update(token_questioned_at=None, token_invalid_at=None)
        graph.received.clear()
        api.request(route.method, route.path.format(**ids), None if route.method == "GET" else dict(row.body))
        if graph.received:
            checked[route.name] = graph.received[-1].path == "/debug_token"
    assert {name for name, was in checked.items() if not was} == LEAVING
    assert len(checked) > 15
