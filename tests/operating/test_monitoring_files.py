"""deploy/monitoring: each rule and panel uses existing metrics, and each alert has its runbook."""

import json
import re
from typing import Any

import yaml

import gateway.urls  # noqa: F401 - what a web process imports registers the metrics
import messaging.sending.journal_replay  # noqa: F401 - started by name in a web process
import web.routes  # noqa: F401 - the front of a web process
from gateway.monitoring import metrics
from tests.pages import ROOT, headings

MONITORING = ROOT / "deploy/monitoring"
_NAMED = re.compile(r"\bgateway_\w+")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return found


def test_every_metric_of_a_rule_or_a_panel_exists() -> None:
    known = set(metrics.names())
    asked = [rule["expr"] for rule in rules()]
    asked += [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(asked) > 25
    for expression in asked:
        for name in _NAMED.findall(expression):
            assert name in known or name.removesuffix("_bucket") in known, expression


def test_every_metric_is_watched() -> None:
    shown = {
        name for panel in panels() for target in panel["targets"] for name in _NAMED.findall(target["expr"])
    }
    shown |= {name for rule in rules() for name in _NAMED.findall(rule["expr"])}
    assert {name.removesuffix("_bucket") for name in shown} >= set(metrics.names()) - {
        "gateway_deliveries_claimed_total"  # sent and failed attempts are shown instead
    }


def test_every_alert_has_its_runbook() -> None:
    written = set(headings("docs/runbooks.md")) - {"Runbooks"}
    assert written == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"page", "warn"}


def test_every_alert_is_tried() -> None:
    """Every alert has a unit test. `make chart` runs these tests with promtool."""
    tried = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
    assert {case["name"] for case in tried} == {rule["alert"] for rule in rules()}
