"""The Helm chart names the processes of docs/operations.md and settings that exist; `make chart` renders it.

Neither it nor the nginx examples lead strangers to the metrics.
"""

import re
from pathlib import Path

import yaml

from edge import application
from tests.documentation.test_docs import rows
from tests.operating.chart import backend
from tests.pages import page

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "chart"
EDGES = {"notifications", "stream"}


def test_each_process_runs_the_documented_command() -> None:
    documented = {row[0]: row[1].strip("`").split() for row in rows("docs/operations.md", "Processes")}
    found = re.findall(r'^  "(\w+)" \(list (.*)\)$', (CHART / "templates/_pod.tpl").read_text(), re.MULTILINE)
    commands = {name: re.findall(r'"([^"]*)"', words) for name, words in found}
    assert set(commands) - {"migrate"} - EDGES == set(documented) - {"edge", "simulator"}
    for name, command in commands.items():
        if name != "migrate":
            assert command == documented["edge" if name in EDGES else name], name
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())["processes"]) == set(commands) - {
        "migrate"
    }


def test_its_settings_exist() -> None:
    known = set(re.findall(r"^# ([A-Z_]+)=", page(".env.example"), re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values["settings"]) | set(values["secret"]["keys"]) <= known
    set_by_the_chart = re.findall(
        r"^  ([A-Z_]+): ", (CHART / "templates/settings.yaml").read_text(), re.MULTILINE
    )
    assert set(set_by_the_chart) <= known


def test_no_route_from_outside_leads_to_the_metrics() -> None:
    template = (CHART / "templates/ingress.yaml").read_text()
    routes = re.findall(r'\(list "([^"]+)" "(\w+)" "(\w+)"\)', template)
    assert backend("/metrics", routes) == "notifications", "the edge has no such page"
    assert "/metrics" not in application.ROUTES
    assert backend("/v1/tenant", routes) == "web"
    for name in ("nginx.conf", "cells/nginx.conf"):
        assert re.search(r"location = /metrics +\{ return 404; \}", (DEPLOY / name).read_text()), name
    published = {
        name: service["ports"]
        for name, service in yaml.safe_load(page("docker-compose.yml"))["services"].items()
        if "ports" in service
    }
    assert set(published) == {"proxy"}, "every other service would answer past the proxy"
