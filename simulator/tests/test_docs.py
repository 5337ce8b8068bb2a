"""docs/simulator.md names every control route, setting, preset, fault, inbox mode and variable."""

import re
from pathlib import Path

import pytest

from simulator.app import make_app
from simulator.config import Config
from simulator.faults import ACTIONS, MATCHES
from simulator.settings import PRESETS, Settings
from simulator.world.inbox_store import MODES, VERIFY_MODES
from simulator.world.state import TOKEN_VARIANTS

DOCS = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()


def control_routes() -> list[tuple[str, str]]:
    """Method and path of every route of the control API."""
    routes = make_app(Config()).router.routes()
    found = {(route.method, route.resource.canonical) for route in routes if route.resource is not None}
    return sorted((method, path) for method, path in found if path.startswith("/sim/") and method != "HEAD")


@pytest.mark.parametrize(("method", "path"), control_routes())
async def test_every_control_route_has_an_example(method: str, path: str) -> None:
    pattern = re.sub(r"\\{\w+\\}", lambda _: r"[^/\s\"']+", re.escape(path))
    examples = re.findall(rf"curl [^\n]*\$S{pattern}(?:[?\"' ][^\n]*)?$", DOCS, re.MULTILINE)
    assert any(method == example_method(line) for line in examples), f"{method} {path}"


def example_method(line: str) -> str:
    """The HTTP method of a curl command."""
    named = re.search(r"-X (\w+)", line)
    return named.group(1) if named else ("POST" if " -d " in line else "GET")


@pytest.mark.parametrize(
    "name",
    [
        *(f"{group}.{member}" for group, members in Settings().view().items() for member in members),
        *PRESETS,
        *ACTIONS,
        *MATCHES,
        *MODES,
        *VERIFY_MODES,
        *TOKEN_VARIANTS,
        "SIMULATOR_PORT",
        "SIMULATOR_BASE_URL",
        "SIMULATOR_STATE",
        "GATEWAY_CALLBACK_URL",
        "META_APP_ID",
        "META_APP_SECRET",
    ],
)
def test_every_name_is_explained(name: str) -> None:
    group, _, member = name.rpartition(".")
    assert f"`{name}`" in DOCS or (group and f"`{group}." in DOCS and f"`{member}`" in DOCS), name
